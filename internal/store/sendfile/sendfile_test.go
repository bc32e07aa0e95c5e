// SPDX-License-Identifier: Apache-2.0

package sendfile_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/store/sendfile"
)

// pipe returns both ends of a TCP connection.
func pipe(t *testing.T) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return here, there
}

func file(t *testing.T, data []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestSend sends a range to a socket and to a bufio.Writer that holds other bytes before it.
func TestSend(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 300_000)
	f := file(t, data)
	for _, buffered := range []bool{false, true} {
		here, there := pipe(t)
		want := data[7:2_000_000]
		var w io.Writer = here
		if buffered {
			b := bufio.NewWriter(here)
			_, _ = b.WriteString("head")
			w, want = b, append([]byte("head"), want...)
		}
		got := make(chan []byte, 1)
		go func() {
			all, _ := io.ReadAll(there)
			got <- all
		}()
		off := int64(7)
		sent, err := sendfile.Send(w, int(f.Fd()), &off, 2_000_000)
		if !sent || err != nil || off != 2_000_000 {
			t.Errorf("buffered %t: sent %t up to %d: %v", buffered, sent, off, err)
		}
		_ = here.Close()
		if all := <-got; !bytes.Equal(all, want) {
			t.Errorf("buffered %t: %d bytes arrived, expected %d", buffered, len(all), len(want))
		}
	}
}

// TestWhatCannotBeSent: a writer without a socket gets nothing, and a short file and a deadline are told apart.
func TestWhatCannotBeSent(t *testing.T) {
	f := file(t, make([]byte, 8<<20))
	off := int64(0)
	var to bytes.Buffer
	for _, w := range []io.Writer{&to, bufio.NewWriter(&to)} {
		if sent, err := sendfile.Send(w, int(f.Fd()), &off, 100); sent || err != nil || off != 0 || to.Len() != 0 {
			t.Errorf("%T: sent %t, %d bytes: %v", w, sent, to.Len(), err)
		}
	}
	here, there := pipe(t)
	go func() { _, _ = io.Copy(io.Discard, io.LimitReader(there, 8<<20)) }()
	if _, err := sendfile.Send(here, int(f.Fd()), &off, 8<<20+1); !sendfile.Ended(err) || off != 8<<20 {
		t.Errorf("a short file: %v after %d bytes", err, off)
	}
	if err := here.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	off = 0
	if _, err := sendfile.Send(here, int(f.Fd()), &off, 100); !errors.Is(err, os.ErrDeadlineExceeded) ||
		sendfile.Ended(err) {
		t.Errorf("after the deadline: %v", err)
	}
}
