// Package config holds every setting of objstore in one table: name, kind, default, bounds and help. A setting that is
// not in the table does not exist: an unknown OBJ_ variable is refused by name, and so is a value out of bounds.
//
// settings.go has the typed result, table.go the table, load.go reads the environment, show.go prints the effective
// values. The package imports only the standard library. A *Settings is plain data: read it from anywhere, change it
// nowhere after Load.
package config
