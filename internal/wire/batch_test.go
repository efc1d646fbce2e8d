package wire

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// recorder is a connection that keeps what is written to it, write by write.
type recorder struct {
	net.Conn
	writes [][]byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.writes = append(r.writes, bytes.Clone(p))
	return len(p), nil
}

func TestABatchGathersRecordsAndPassesEverythingElseThrough(t *testing.T) {
	rec := &recorder{}
	c := &BatchConn{Conn: rec}
	var want []byte
	write := func(n int) {
		p := bytes.Repeat([]byte{byte(len(want))}, n)
		want = append(want, p...)
		if m, err := c.Write(p); m != n || err != nil {
			t.Fatalf("Write: %d, %v", m, err)
		}
	}
	write(10)
	if len(rec.writes) != 1 {
		t.Fatalf("outside of a batch: %d writes, expected 1", len(rec.writes))
	}
	c.Begin()
	for range 64 {
		write(16 << 10)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := len(rec.writes) - 1; n != 64*(16<<10)/batchLimit {
		t.Errorf("64 records of 16 KiB took %d writes, expected %d", n, 64*(16<<10)/batchLimit)
	}
	write(5)
	if got := rec.writes[len(rec.writes)-1]; len(got) != 5 {
		t.Errorf("after the batch a write of 5 bytes went out as %d", len(got))
	}
	if !bytes.Equal(bytes.Join(rec.writes, nil), want) {
		t.Error("the bytes are not in order")
	}
}

func TestTheOutboxIsBoundedAndWritesWhatIsQueuedAtOnce(t *testing.T) {
	o := newOutbox(1000)
	h := header{kind: kindOneWay, method: MethodRaft}
	n := 0
	for o.put(h, make([]byte, 80), true, false) == nil {
		n++
	}
	if n != 10 {
		t.Errorf("%d frames of 100 bytes were queued, the limit is 1,000 bytes", n)
	}
	rec := &recorder{}
	q, err := o.take(queue{})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&connWriter{c: &deadlineless{rec}}).write(q); err != nil {
		t.Fatal(err)
	}
	if len(rec.writes) != 1 || len(rec.writes[0]) != 1000 {
		t.Errorf("%d writes, expected one of 1,000 bytes", len(rec.writes))
	}
	if err := o.put(h, make([]byte, 5000), true, false); err != nil {
		t.Errorf("a frame above the limit on an empty queue: %v", err)
	}
	o.close(errConnClosed)
	if err := o.put(h, nil, true, true); err == nil {
		t.Error("a closed outbox took a frame")
	}
}

type deadlineless struct{ *recorder }

func (deadlineless) SetWriteDeadline(time.Time) error { return nil }
