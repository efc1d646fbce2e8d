package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"objstore/admin"
	"objstore/cmd/objstore/devcluster"
)

// access says how a command reaches a cluster and as whom.
type access struct {
	endpoint string
	dir      string
}

// reached is what access resolves to.
type reached struct {
	s3, admin            []string
	accessKey, secretKey string
	region               string
}

const (
	defaultS3     = "http://127.0.0.1:9000"
	defaultAdmin  = "http://127.0.0.1:9001"
	defaultRegion = "us-east-1"
)

func (a *access) flags(c *cobra.Command, port string) {
	c.Flags().StringVar(&a.endpoint, "endpoint", "", "`URL` of the "+port+" port, several with commas; credentials from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	c.Flags().StringVar(&a.dir, "dir", "", "`folder` of a running dev cluster, or one with a credentials.json")
}

// resolve looks at the flags first, then at the folder, then at the environment.
func (a *access) resolve(e env) (reached, error) {
	r := reached{accessKey: e.get("AWS_ACCESS_KEY_ID"), secretKey: e.get("AWS_SECRET_ACCESS_KEY"), region: first(e.get("AWS_REGION"), e.get("AWS_DEFAULT_REGION"), defaultRegion)}
	if a.dir != "" {
		if err := a.fromDir(&r); err != nil {
			return r, usage(err)
		}
	}
	if a.endpoint != "" {
		list := strings.Split(a.endpoint, ",")
		r.s3, r.admin = list, list
	}
	if len(r.s3) == 0 {
		r.s3 = strings.Split(first(e.get("AWS_ENDPOINT_URL_S3"), e.get("AWS_ENDPOINT_URL"), defaultS3), ",")
	}
	if len(r.admin) == 0 {
		r.admin = []string{defaultAdmin}
	}
	if r.accessKey == "" || r.secretKey == "" {
		return r, usage(errors.New("credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not both set, and no --dir was given"))
	}
	return r, nil
}

func (a *access) fromDir(r *reached) error {
	s, err := devcluster.ReadState(a.dir)
	if err == nil {
		r.accessKey, r.secretKey, r.region = s.AccessKey, s.SecretKey, s.Region
		for _, n := range s.Nodes {
			r.s3, r.admin = append(r.s3, n.S3), append(r.admin, n.Admin)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c, credErr := devcluster.ReadCredentials(a.dir)
	if credErr != nil {
		return fmt.Errorf("%w; nor can credentials be read: %w", err, credErr)
	}
	r.accessKey, r.secretKey, r.region = c.AccessKey, c.SecretKey, first(c.Region, r.region)
	ep, err := devcluster.ReadEndpoints(a.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a folder of a dev cluster that is not running
	}
	if err == nil {
		r.s3, r.admin = []string{ep.S3}, []string{ep.Admin}
	}
	return err
}

// client returns an admin client.
func (a *access) client(e env) (*admin.Client, error) {
	r, err := a.resolve(e)
	if err != nil {
		return nil, err
	}
	c, err := admin.NewClient(r.admin, r.accessKey, r.secretKey, r.region)
	return c, usage(err)
}

// first returns the first string that is not empty.
func first(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}
