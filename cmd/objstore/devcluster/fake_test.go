package devcluster

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMain makes the test binary its own fake server: it answers what the supervisor asks of a node, and behaves badly
// when the environment says so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "server" {
		if err := fakeServer(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func fakeServer(args []string) error {
	fs := flag.NewFlagSet("server", flag.ContinueOnError)
	name, s3, adm := fs.String("name", "", ""), fs.String("s3", "", ""), fs.String("admin", "", "")
	internode, gossip := fs.String("internode", "", ""), fs.String("gossip", "", "")
	expect, join, tokenFile := fs.Int("bootstrap-expect", 0, ""), fs.String("join", "", ""), fs.String("token-file", "", "")
	shared := fs.Bool("allow-shared-device", false, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if os.Getenv("FAKE_FAIL") == *name {
		return fmt.Errorf("%s fails as it was told to", *name)
	}
	if *internode == "" || *gossip == "" || !*shared || len(fs.Args()) == 0 {
		return fmt.Errorf("arguments: %q", args)
	}
	identity := filepath.Join(fs.Arg(0), identityFile)
	if b, err := os.ReadFile(identity); err != nil {
		how := fmt.Sprintf("founded by %s, expects %d", *name, *expect)
		if *join != "" {
			token, err := os.ReadFile(*tokenFile)
			if err != nil {
				return err
			}
			how = fmt.Sprintf("joined %s with %s", *join, strings.TrimSpace(string(token)))
		} else if os.Getenv("OBJ_ROOT_ACCESS_KEY") == "" {
			return fmt.Errorf("the founder got no root credential")
		}
		if err := os.WriteFile(identity, []byte(how), 0o600); err != nil {
			return err
		}
	} else if *join != "" || *expect != 0 {
		return fmt.Errorf("a member (%s) got the flags of a new node", b)
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	tokens := 0
	go http.ListenAndServe(*adm, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens++
		json.NewEncoder(w).Encode(map[string]any{"token": fmt.Sprintf("token-%d", tokens)})
	}))
	go http.ListenAndServe(*s3, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if os.Getenv("FAKE_UNREADY") == *name {
			w.WriteHeader(503)
		}
		io.WriteString(w, *name)
	}))
	<-term
	for os.Getenv("FAKE_STUBBORN") == *name {
		<-term
	}
	return nil
}
