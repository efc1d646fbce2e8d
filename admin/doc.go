// Package admin is the second port of a node: what operators and their tools ask. /metrics and /-/live answer
// everybody; everything else is for the root credential, signed as an S3 request is.
//
// api.go has the routes, types.go the JSON documents, metrics.go the hooks that count and time, collect.go what is
// read from the components when somebody scrapes, client.go the client that the commands use, table.go prints for
// people. The package knows no component: the node gives it small interfaces. It must not import s3 (authentication is
// a function in Config) nor hold a global registry.
package admin
