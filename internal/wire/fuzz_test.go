package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"objstore/internal/oerr"
)

func frame(h header, payload []byte) []byte {
	b := make([]byte, headerSize)
	h.length = uint32(len(payload))
	h.put(b)
	return append(b, payload...)
}

func TestHeaderBytesAreAsDocumented(t *testing.T) {
	b := frame(header{kind: kindRequest, method: MethodQuery, id: 0x0102030405060708, deadline: 1500}, []byte("abc"))
	want := []byte{3, 0, 0, 0, 1, 0, 5, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0xdc, 5, 0, 0, 'a', 'b', 'c'}
	if !bytes.Equal(b, want) {
		t.Errorf("frame\n got % x\nwant % x", b, want)
	}
	if preamble != "OBJR\x01\x00\x00\x00" || ALPNRPC != "objstore-rpc/1" || ALPNShard != "objstore-shard/1" || ALPNJoin != "objstore-join/1" {
		t.Error("preamble or protocol names changed")
	}
}

func TestBadHeadersAreRefused(t *testing.T) {
	good := header{length: 5, kind: kindRequest, method: 5, id: 1, deadline: 1}
	for name, change := range map[string]func(h *header){
		"kind 0":                   func(h *header) { h.kind = 0 },
		"kind 5":                   func(h *header) { h.kind = 5 },
		"too long":                 func(h *header) { h.length = 101 },
		"length that is negative":  func(h *header) { h.length = 1 << 31 },
		"request without deadline": func(h *header) { h.deadline = 0 },
		"request without id":       func(h *header) { h.id = 0 },
		"one-way with id":          func(h *header) { h.kind, h.deadline = kindOneWay, 0 },
		"reply with deadline":      func(h *header) { h.kind = kindReply },
		"error without a kind":     func(h *header) { h.kind, h.deadline, h.length = kindError, 0, 1 },
	} {
		h := good
		change(&h)
		b := make([]byte, headerSize)
		h.put(b)
		if _, err := parseHeader(b, 100); !errors.Is(err, errGarbage) {
			t.Errorf("%s: %v, expected a refusal", name, err)
		}
	}
	b := make([]byte, headerSize)
	good.put(b)
	if got, err := parseHeader(b, 100); err != nil || got != good {
		t.Errorf("good header: %+v, %v", got, err)
	}
	b[5] = 1
	if _, err := parseHeader(b, 100); !errors.Is(err, errGarbage) {
		t.Errorf("reserved byte set: %v, expected a refusal", err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(frame(header{kind: kindRequest, method: 5, id: 1, deadline: 10}, []byte("x")))
	f.Add(frame(header{kind: kindOneWay, method: 2}, nil))
	f.Add(frame(header{kind: kindError, id: 9}, []byte{1, 0, 'x'}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := readHeader(bufio.NewReader(bytes.NewReader(in)), 1<<20)
		if err != nil {
			return
		}
		if h.length > 1<<20 {
			t.Fatalf("accepted a payload of %d bytes", h.length)
		}
		b := make([]byte, headerSize)
		if h.put(b); !bytes.Equal(b, in[:headerSize]) {
			t.Fatalf("header % x written again is % x", in[:headerSize], b)
		}
	})
}

func FuzzError(f *testing.F) {
	f.Add(AppendError(nil, oerr.Errorf("op", oerr.Corrupt, "bad")))
	f.Add([]byte{})
	f.Add([]byte{200, 255, 'x'})
	f.Fuzz(func(t *testing.T, in []byte) {
		err := ParseError("op", in)
		if err == nil {
			t.Fatal("no error came out")
		}
		if len(in) < 2 {
			return
		}
		again := ParseError("op", AppendError(nil, err))
		if oerr.KindOf(again) != oerr.Kind(in[0]) || oerr.IsCorrupt(again) != oerr.IsCorrupt(err) {
			t.Fatalf("kind %v corrupt %v became %v %v", oerr.Kind(in[0]), oerr.IsCorrupt(err), oerr.KindOf(again), oerr.IsCorrupt(again))
		}
	})
}

// bareServer is a server without a listener, for connections made by hand.
func bareServer() *Server {
	s := &Server{}
	s.cfg.fill()
	s.cfg.MaxFrame, s.cfg.MaxConcurrent = 64<<10, 4
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.Handle(MethodPing, RoleNode, func(_ context.Context, _ Peer, req []byte) ([]byte, error) { return req, nil })
	s.Handle(MethodRaft, RoleNode, func(context.Context, Peer, []byte) ([]byte, error) { return nil, errors.New("no") })
	return s
}

// FuzzServeRPC feeds a connection arbitrary bytes: it must end when they end, answer only what was asked, and leave no
// goroutine waiting (the wait for serveRPC would not return).
func FuzzServeRPC(f *testing.F) {
	ping := frame(header{kind: kindRequest, method: MethodPing, id: 7, deadline: 1000}, []byte("ping"))
	f.Add(append([]byte(preamble), ping...))
	f.Add(append(append([]byte(preamble), ping...), frame(header{kind: kindOneWay, method: MethodRaft}, []byte("m"))...))
	f.Add(append([]byte(preamble), frame(header{kind: kindRequest, method: 999, id: 1, deadline: 1}, nil)...))
	f.Add(append([]byte(preamble), ping[:10]...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s := bareServer()
		defer s.cancel()
		near, far := net.Pipe()
		var answers bytes.Buffer
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(&answers, near) })
		done := make(chan string, 1)
		go func() { done <- s.serveRPC(far, Peer{Node: 1, Role: RoleNode}) }()
		near.SetWriteDeadline(time.Now().Add(5 * time.Second))
		near.Write(in)
		near.Close()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("the connection did not end")
		}
		far.Close()
		wg.Wait()
		br := bufio.NewReader(&answers)
		for {
			h, err := readHeader(br, 64<<10)
			if err != nil {
				break
			}
			if h.kind != kindReply && h.kind != kindError {
				t.Fatalf("the server sent kind %d", h.kind)
			}
			br.Discard(int(h.length))
		}
	})
}

func TestARefusedCallIsAnsweredAndTheConnectionGoesOn(t *testing.T) {
	s := bareServer()
	defer s.cancel()
	near, far := net.Pipe()
	done := make(chan string, 1)
	go func() { done <- s.serveRPC(far, Peer{Node: 1, Role: RoleNode}) }()
	near.SetDeadline(time.Now().Add(10 * time.Second))
	br := bufio.NewReader(near)
	ask := func(m Method, id uint64) header {
		t.Helper()
		lead := ""
		if id == 1 {
			lead = preamble
		}
		if _, err := near.Write(append([]byte(lead), frame(header{kind: kindRequest, method: m, id: id, deadline: 5000}, []byte("x"))...)); err != nil {
			t.Fatal(err)
		}
		h, err := readHeader(br, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		br.Discard(int(h.length))
		return h
	}
	if h := ask(999, 1); h.kind != kindError || h.id != 1 {
		t.Errorf("unknown method: %+v", h)
	}
	if h := ask(MethodPing, 2); h.kind != kindReply || h.id != 2 || h.length != 1 {
		t.Errorf("ping: %+v", h)
	}
	near.Close()
	if reason := <-done; reason != ReasonClosed {
		t.Errorf("ended with %q", reason)
	}
}
