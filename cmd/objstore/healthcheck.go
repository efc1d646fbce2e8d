package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthOptions are the flags of objstore healthcheck.
type healthOptions struct {
	endpoint string
	check    string
	timeout  time.Duration
}

const maxHealthBody = 4 << 10 // bytes

func newHealthcheck(e env) *cobra.Command {
	o := &healthOptions{}
	c := &cobra.Command{
		Use:   "healthcheck",
		Short: "ask one node whether it is well",
		Long: help(`
Ask one node's S3 port whether it is well; no credentials are needed. The checks: live (the process answers), ready (it
can serve requests; this tries the write path) and cluster (enough nodes and drives are there to read and write).`,
			"0  it is", "1  it is not, or did not answer in time", "2  flags were refused"),
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runHealthcheck(c.Context(), e, o) },
	}
	c.Flags().StringVar(&o.endpoint, "endpoint", defaultS3, "`URL` of the S3 port")
	c.Flags().StringVar(&o.check, "check", "ready", "what to ask: live, ready or cluster")
	c.Flags().DurationVar(&o.timeout, "timeout", 10*time.Second, "`time` to wait for the answer")
	return c
}

func runHealthcheck(ctx context.Context, e env, o *healthOptions) error {
	if o.check != "live" && o.check != "ready" && o.check != "cluster" {
		return usage(fmt.Errorf("--check: read %q, expected live, ready or cluster", o.check))
	}
	if o.timeout <= 0 {
		return usage(fmt.Errorf("--timeout: read %s, expected more than 0", o.timeout))
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(o.endpoint, "/")+"/-/"+o.check, nil)
	if err != nil {
		return usage(fmt.Errorf("--endpoint: %w", err))
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxHealthBody))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: not %s: status %d: %s", o.endpoint, o.check, resp.StatusCode, strings.TrimSpace(string(text)))
	}
	_, err = fmt.Fprintf(e.out, "%s: %s\n", o.endpoint, o.check)
	return err
}
