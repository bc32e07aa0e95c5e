// SPDX-License-Identifier: Apache-2.0

package conn

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// recorder is a connection that tells what it was given to read from.
type recorder struct {
	net.Conn
	from []string
	n    []int64
}

func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	l, ok := src.(*io.LimitedReader)
	if !ok {
		r.from = append(r.from, fmt.Sprintf("%T", src))
		return 0, nil
	}
	r.from, r.n = append(r.from, fmt.Sprintf("%T", l.R)), append(r.n, l.N)
	return l.N, nil
}

func TestConnKeepsSendfile(t *testing.T) {
	r := &recorder{}
	c := &Conn{Conn: r, table: NewTable(), stall: time.Minute}
	n, err := c.ReadFrom(&io.LimitedReader{R: os.Stdin, N: 2*sendSize + 5})
	if n != 2*sendSize+5 || err != nil || fmt.Sprint(r.from) != "[*os.File *os.File *os.File]" ||
		fmt.Sprint(r.n) != fmt.Sprint([]int64{sendSize, sendSize, 5}) {
		t.Errorf("%d %v %v %v", n, err, r.from, r.n)
	}
}

// taker is a body that takes the socket, as the store's do.
type taker struct{ io.Reader }

func (taker) WriteTo(w io.Writer) (int64, error) {
	sc, ok := w.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("%T gives out no socket", w)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	err = raw.Write(func(fd uintptr) bool {
		n, err = syscall.Write(int(fd), []byte("by itself"))
		return true
	})
	return int64(n), err
}

func TestConnGivesOutItsSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wrapped := NewTable().Wrap(l, time.Minute, nil)
	defer wrapped.Close()
	go func() {
		c, err := wrapped.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		if n, err := bufio.NewWriter(c).ReadFrom(taker{}); n != 9 || err != nil {
			t.Errorf("%d %v", n, err)
		}
		_ = c.Close()
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); string(got) != "by itself" || err != nil {
		t.Errorf("%q %v", got, err)
	}
}
