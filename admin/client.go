package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"objstore/internal/config"
	"objstore/internal/oerr"
	"objstore/internal/sigv4"
)

const (
	maxAnswer     = 64 << 20 // bytes; an object of 10,000 parts on 12 shards each is about 30 MB of JSON
	clientTimeout = 40 * time.Second
)

// Service is the service name that admin requests are signed for.
const Service = "s3"

// Client asks the admin API of a cluster: the endpoints in turn, until one answers. Safe for concurrent use.
type Client struct {
	endpoints []string
	signer    *sigv4.Signer
	http      *http.Client
}

// NewClient returns a client for endpoints of the form http://HOST:PORT.
func NewClient(endpoints []string, accessKey, secretKey, region string) (*Client, error) {
	var p []error
	for _, e := range endpoints {
		u, err := url.Parse(e)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
			p = append(p, fmt.Errorf("endpoint: read %q, expected http://HOST:PORT", e))
		}
	}
	if len(endpoints) == 0 {
		p = append(p, errors.New("endpoint: none given"))
	}
	if accessKey == "" || secretKey == "" {
		p = append(p, errors.New("credentials: none given (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --dir)"))
	}
	if err := errors.Join(p...); err != nil {
		return nil, oerr.E("admin.client", oerr.InvalidArgument, err)
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: clientTimeout}
	return &Client{endpoints, sigv4.New(accessKey, secretKey, region, Service), &http.Client{Transport: transport}}, nil
}

// Info returns the cluster as the first node that answers sees it.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var v Info
	return v, c.call(ctx, "GET", "/v1/info", "", &v)
}

// Object returns the report of the current version of bucket/key.
func (c *Client) Object(ctx context.Context, bucket, key string) (ObjectReport, error) {
	var v ObjectReport
	return v, c.call(ctx, "GET", "/v1/object", "bucket="+sigv4.EscapeQuery(bucket)+"&key="+sigv4.EscapeQuery(key), &v)
}

// Token makes a one-time join token; ttl 0 takes the server's setting.
func (c *Client) Token(ctx context.Context, ttl time.Duration) (Token, error) {
	query := ""
	if ttl > 0 {
		query = "ttl=" + sigv4.EscapeQuery(ttl.String())
	}
	var v Token
	return v, c.call(ctx, "POST", "/v1/token", query, &v)
}

// Settings returns the effective settings of the first node that answers.
func (c *Client) Settings(ctx context.Context) ([]config.Row, error) {
	var v []config.Row
	return v, c.call(ctx, "GET", "/v1/config", "", &v)
}

// call asks one endpoint after another. Only what another node could answer better goes on to the next: no
// connection, and Unavailable in its forms.
func (c *Client) call(ctx context.Context, method, path, query string, out any) error {
	var last error
	for _, e := range c.endpoints {
		err := c.one(ctx, e, method, path, query, out)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return oerr.Wrap("admin.client", errors.Join(ctx.Err(), last))
		case statusOf(oerr.KindOf(err)) != http.StatusServiceUnavailable:
			return err
		}
		last = err
	}
	return last
}

func (c *Client) one(ctx context.Context, endpoint, method, path, query string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	target := strings.TrimRight(endpoint, "/") + path
	if query != "" {
		target += "?" + query
	}
	r, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return oerr.E("admin.client", oerr.InvalidArgument, err)
	}
	date, auth := c.signer.Sign(time.Now(), sigv4.Request{Method: method, Host: r.URL.Host, Path: path, Query: query, Hash: sigv4.EmptyPayload})
	r.Header.Set("X-Amz-Date", date)
	r.Header.Set("X-Amz-Content-Sha256", sigv4.EmptyPayload)
	r.Header.Set("Authorization", auth)
	resp, err := c.http.Do(r)
	if err != nil {
		return oerr.E("admin.client", oerr.Unavailable, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return oerr.E("admin.client", oerr.Unavailable, fmt.Errorf("%s: %w", target, err))
	}
	if len(b) > maxAnswer {
		return oerr.Errorf("admin.client", oerr.Internal, "%s: an answer of more than %d bytes", target, maxAnswer)
	}
	if resp.StatusCode != http.StatusOK {
		return answerError(endpoint, resp.StatusCode, b)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return oerr.Errorf("admin.client", oerr.Internal, "%s: the answer is no JSON of the expected form: %w", target, err)
	}
	return nil
}

// answerError makes an error of the kind that the server named; something that is no objstore gives Internal.
func answerError(endpoint string, status int, body []byte) error {
	var e Error
	if json.Unmarshal(body, &e) != nil || e.Kind == "" {
		return oerr.Errorf("admin.client", oerr.Internal, "%s: status %d: %.200q", endpoint, status, body)
	}
	for k := oerr.Internal; k <= oerr.Closed; k++ {
		if k.String() == e.Kind {
			return oerr.Errorf("admin.client", k, "%s: %s", endpoint, e.Message)
		}
	}
	return oerr.Errorf("admin.client", oerr.Internal, "%s: %s: %s", endpoint, e.Kind, e.Message)
}
