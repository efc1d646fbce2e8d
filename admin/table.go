package admin

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteTable prints the cluster for people.
func (i *Info) WriteTable(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	formed := "formed"
	if !i.Formed {
		formed = fmt.Sprintf("forming: %d of %d nodes have joined", len(i.Nodes), i.Expect)
	}
	fmt.Fprintf(tw, "cluster\t%s (%s)\nprofile\t%s, map epoch %d, %d placement groups\nbuckets\t%d\n", i.ClusterID, formed, i.Profile, i.MapEpoch, i.PGs, i.Buckets)
	known := ""
	if !i.Repair.Known {
		known = " at least (a group did not answer)"
	}
	fmt.Fprintf(tw, "repair\t%d pending, %d lost%s\n", i.Repair.Pending, i.Repair.Lost, known)
	fmt.Fprintln(tw, "\nNODE\tNAME\tSTATE\tLEADS\tS3\tADMIN\tINTERNODE")
	for _, n := range i.Nodes {
		fmt.Fprintf(tw, "%d\t%s\t%s\t%d\t%s\t%s\t%s\n", n.ID, n.Name, n.State, n.Leaders, n.S3, n.Admin, n.Internode)
	}
	fmt.Fprintln(tw, "\nDRIVE\tNODE\tSTATE\tCAPACITY\tFREE\tSHARDS\tPATH")
	for _, d := range i.Drives {
		state := d.State
		if d.Cause != "" {
			state += " (" + d.Cause + ")"
		}
		fmt.Fprintf(tw, "%d\t%d\t%s\t%s\t%s\t%d\t%s\n", d.ID, d.Node, state, human(d.CapacityBytes), human(d.FreeBytes), d.Shards, d.Path)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, s := range i.Survives {
		fmt.Fprintf(w, "\n%s", s)
	}
	for _, s := range i.Warnings {
		fmt.Fprintf(w, "\nwarning: %s", s)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// WriteTable prints the object for people.
func (o *ObjectReport) WriteTable(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "object\t%s/%s\nversion\t%s\nsize\t%d bytes\netag\t%s\nprofile\t%s\n", o.Bucket, o.Key, o.Version, o.Size, o.ETag, o.Profile)
	if o.Inline {
		fmt.Fprintln(tw, "body\tin its metadata row")
	}
	if len(o.Shards) > 0 {
		fmt.Fprintln(tw, "\nPART\tBLOB\tINDEX\tNODE\tDRIVE\tSTATE\tPATH\tOFFSET\tLENGTH")
	}
	for _, s := range o.Shards {
		fmt.Fprintf(tw, "%d\t%s\t%d\t%s\t%d\t%s\t%s\t%d\t%d\n", s.Part, s.Blob, s.Index, s.Node, s.Drive, s.State, s.Path, s.Offset, s.Length)
	}
	return tw.Flush()
}

// human writes a size with three digits; a size of 0 is one that is not known.
func human(n uint64) string {
	if n == 0 {
		return "?"
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, u := float64(n), 0
	for v >= 1000 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if v >= 100 || u == 0 {
		return fmt.Sprintf("%.0f %s", v, units[u])
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}
