// Package devcluster runs a whole cluster on one machine: each node is an operating-system process of its own, started
// with the same binary, and dies with its parent. It is what `objstore dev` does, for trying objstore out and for tests.
//
// config.go says what to run, layout.go where everything lies, proc.go is one child process, start.go brings a cluster
// up, run.go keeps it until the end, control.go serves `dev kill` and `dev start` on a unix socket, state.go reads and
// writes dev.json. The package starts servers only through Config.Exec; it imports no server package.
//
// One Cluster is run once, by Run. The control socket's handlers run concurrently with it; each child's fields are
// under its own mutex.
package devcluster
