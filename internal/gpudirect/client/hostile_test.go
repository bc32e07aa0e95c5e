// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/channel"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// impostor listens in a server's place. It logs clients in, and then answers each request as answer wants.
func impostor(t *testing.T, answer func(c *net.UnixConn, h wire.Header, m wire.Message)) string {
	t.Helper()
	path, l := listenUnix(t)
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go serveFalsely(c, answer)
		}
	}()
	return path
}

func serveFalsely(c *net.UnixConn, answer func(c *net.UnixConn, h wire.Header, m wire.Message)) {
	defer c.Close()
	ch := &wire.Challenge{Version: wire.Version, Store: testStore}
	for b := make([]byte, wire.MaxMessage); ; {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		h, m, _ := wire.Decode(b[:n])
		switch m := m.(type) {
		case *wire.Hello:
			_ = say(c, wire.Header{Request: h.Request}, ch)
		case *wire.Proof:
			_ = say(c, wire.Header{Request: h.Request}, &wire.Greeting{MAC: wire.ServerMAC(testSecret, ch, m),
				MaxTransferSize: 1 << 20})
		case *wire.Close:
			_ = say(c, wire.Header{Request: h.Request}, &wire.Ack{})
		default:
			answer(c, wire.Header{Request: h.Request, Flags: wire.FlagMore}, m)
		}
	}
}

func say(c *net.UnixConn, h wire.Header, m wire.Message) error {
	b, err := wire.Append(nil, h, m)
	if err == nil {
		_, err = c.Write(b)
	}
	return err
}

// forever says one thing until the client hangs up.
func forever(m wire.Message) func(*net.UnixConn, wire.Header, wire.Message) {
	return func(c *net.UnixConn, h wire.Header, _ wire.Message) {
		for say(c, h, m) == nil {
		}
	}
}

// TestAnAnswerThatDoesNotEnd: a server that sends packet after packet keeps no client for ever.
func TestAnAnswerThatDoesNotEnd(t *testing.T) {
	r := newRig(t, false)
	for name, m := range map[string]wire.Message{
		"nothing":      &wire.Opened{},
		"failures":     &wire.Opened{Items: []wire.OpenedItem{{Err: &wire.Error{Code: wire.CodeNoSuchKey}}}},
		"other things": &wire.Ack{},
		"pages":        &wire.Listed{Items: []wire.ListedItem{{Key: "a"}}},
	} {
		c := r.client(func(o *Options) { o.Door = impostor(t, forever(m)) })
		if _, err := c.Stat(t.Context(), "b", "k", ""); err == nil {
			t.Errorf("%s for Stat: no error", name)
		}
		if _, err := c.List(t.Context(), List{Bucket: "b"}); err == nil {
			t.Errorf("%s for List: no error", name)
		}
	}
}

// listenUnix listens at a socket of its own, as a door does.
func listenUnix(t *testing.T) (string, *net.UnixListener) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return path, l
}

// TestALoginThatDoesNotEnd: a stranger that never ends its Challenge keeps no client, and gets no proof.
func TestALoginThatDoesNotEnd(t *testing.T) {
	path, l := listenUnix(t)
	go func() {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, wire.MaxMessage))
		for say(c, wire.Header{Request: 1, Flags: wire.FlagMore},
			&wire.Challenge{Version: wire.Version, Store: testStore}) == nil {
		}
	}()
	if err := logIn(path, channel.Peer); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
}

// TestACancelledCallDoesNotWaitForTheRest of an answer that comes packet by packet.
func TestACancelledCallDoesNotWaitForTheRest(t *testing.T) {
	r := newRig(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	c := r.client(func(o *Options) {
		o.Door = impostor(t, func(c *net.UnixConn, h wire.Header, _ wire.Message) {
			cancel()
			forever(&wire.Opened{Items: []wire.OpenedItem{{Err: &wire.Error{Code: wire.CodeNoSuchKey}}}})(c, h, nil)
		})
	})
	if _, err := c.Stat(ctx, "b", "k", ""); err == nil {
		t.Error("no error")
	}
}

// TestAListingInCircles through the door ends, as it does over HTTP.
func TestAListingInCircles(t *testing.T) {
	r := newRig(t, false)
	for name, m := range map[string]*wire.Listed{
		"the same page": {Items: []wire.ListedItem{}, Prefixes: []string{"a/"}, Truncated: true, Next: "a/"},
		"nothing":       {Truncated: true, Next: "b"},
	} {
		c := r.client(func(o *Options) {
			o.Door = impostor(t, func(c *net.UnixConn, h wire.Header,
				_ wire.Message) {
				_ = say(c, wire.Header{Request: h.Request}, m)
			})
		})
		if _, err := c.Tree("b", "host").Names(t.Context(), ""); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPagesThatPointAtEachOther lists what servers send whose pages lead back, through the door and over HTTP.
func TestPagesThatPointAtEachOther(t *testing.T) {
	r := newRig(t, false)
	c := r.client(func(o *Options) {
		o.Door = impostor(t, func(c *net.UnixConn, h wire.Header, m wire.Message) {
			next := "b"
			if l, ok := m.(*wire.List); ok && l.After == "b" {
				next = "a"
			}
			_ = say(c, wire.Header{Request: h.Request}, &wire.Listed{Items: []wire.ListedItem{{Key: next}}, Truncated: true,
				Next: next})
		})
	})
	if _, err := c.Tree("b", "host").Names(t.Context(), ""); !errs.Is(err, errs.Corrupt) ||
		!strings.Contains(err.Error(), "lead back") {
		t.Errorf("through the door: %v", err)
	}
	pages := 0
	entry := func(n int) string { return fmt.Sprintf("<Contents><Key>k%06d</Key><Size>1</Size></Contents>", n) }
	for name, f := range map[string]struct {
		page func(n int) (token, entries string) // of the page that token n asks for
		ends bool
	}{
		"two pages": {func(n int) (string, string) { return fmt.Sprint(n%2 + 1), entry(n) }, false},
		"seven pages after ten": {func(n int) (string,
			string) {
			return fmt.Sprint(map[bool]int{true: n + 1, false: 11}[n < 17]), ""
		}, false},
		"a circle without entries": {func(n int) (string, string) { return fmt.Sprint((n + 1) % 3), "" }, false},
		"new tokens, one page":     {func(n int) (string, string) { return fmt.Sprint(n + 1), entry(1) }, false},
		"new tokens, three groups": {func(n int) (string, string) {
			return fmt.Sprint(n + 1), fmt.Sprintf("<CommonPrefixes><Prefix>g%d/</Prefix></CommonPrefixes>", n%3)
		}, false},
		"a long listing": {func(n int) (string, string) {
			if n == 300 {
				return "", entry(n)
			}
			return fmt.Sprint(n + 1), entry(n)
		}, true},
	} {
		pages = 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			n, _ := strconv.Atoi(q.URL.Query().Get("continuation-token")) // the first page has none
			token, entries := f.page(n)
			if pages++; pages > 1000 {
				w.WriteHeader(http.StatusForbidden) // the test must end
				return
			}
			fmt.Fprintf(w, "<ListBucketResult><IsTruncated>%v</IsTruncated>", token != "")
			if token != "" {
				fmt.Fprintf(w, "<NextContinuationToken>%s</NextContinuationToken>", token)
			}
			fmt.Fprintf(w, "%s</ListBucketResult>", entries)
		}))
		over := r.client(func(o *Options) { o.Endpoint, o.Door = s.URL, "off" })
		names, err := over.Tree("b", "host").Names(t.Context(), "")
		if f.ends && (err != nil || len(names) != 301) {
			t.Errorf("%s: %d names, %v", name, len(names), err)
		}
		if !f.ends && (!errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "lead back") || pages > 100) {
			t.Errorf("%s: after %d pages %v", name, pages, err)
		}
		s.Close()
	}
	if _, err := c.List(t.Context(), List{Bucket: "b", After: tokenMark + "mine"}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a token of nobody: %v", err)
	}
}

// TestKeysThatBeginWithAZeroByteAreListed: they are no tokens of HTTP.
func TestKeysThatBeginWithAZeroByteAreListed(t *testing.T) {
	r := newRig(t, false)
	want := []string{"\x00", "\x00k", "\x00k\x00t", "\x00t1", "\x00z", "a"}
	for i, k := range want {
		r.put(k, content(uint64(i), 10))
	}
	c := r.client()
	var got []string
	for l := (List{Bucket: "b", Limit: 1}); ; {
		p, err := c.List(t.Context(), l)
		if err != nil || len(got) > len(want) {
			t.Fatalf("after %q: %v", got, err)
		}
		for _, o := range p.Objects {
			got = append(got, o.Key)
		}
		if l.After = p.Next; !p.Truncated {
			break
		}
	}
	if len(got) != len(want) || got[0] != want[0] || got[3] != want[3] {
		t.Errorf("%q, expected %q", got, want)
	}
}

// TestDescriptorsBeforeTheLoginAreRefused by the kernel: closing them can take as long as a stranger wants.
func TestDescriptorsBeforeTheLoginAreRefused(t *testing.T) {
	path, l := listenUnix(t)
	s, err := dial(path, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0) != nil {
		t.Skip("the kernel cannot refuse them: that takes Linux 6.16")
	}
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pass := func() error {
		_, _, err := c.WriteMsgUnix([]byte{1}, unix.UnixRights(s.fd), nil)
		return err
	}
	if err := pass(); !errors.Is(err, unix.EPERM) {
		t.Errorf("before the login: %v", err)
	}
	s.takeDescriptors(true)
	if err := pass(); err != nil {
		t.Errorf("after the login: %v", err)
	}
}
