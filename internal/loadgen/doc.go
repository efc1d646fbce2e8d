// Package loadgen drives an S3 endpoint and measures it. It brings its own HTTP/1.1 client, because the client often
// shares its cores with the servers: net/http costs 30–50 µs for each request on one 2.x GHz core, this one about a
// quarter. One worker is one keep-alive connection with one request at a time.
//
// config.go says what to run, conn.go is the HTTP client, request.go makes signed requests, worker.go issues one
// operation after another, prepare.go makes and removes objects, run.go puts it together, hist.go keeps latencies in
// bounded memory. Nothing here may import a server package.
package loadgen
