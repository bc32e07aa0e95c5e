// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/channel"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// loginPacket is the largest size of a login message in bytes. Hello may be the longest one.
const loginPacket = wire.HeaderSize + wire.MaxText + 64

// login authenticates the client and sends the Greeting. If it returns false, the connection ends.
func (c *conn) login() bool {
	c.in = make([]byte, loginPacket+1)
	deadline := time.Now().Add(c.s.opts.Limits.Login)
	h, m, why := c.receive(time.Until(deadline))
	if why != nil || m == nil {
		return c.lost(why)
	}
	hello, ok := m.(*wire.Hello)
	if !ok {
		return c.lost(badMessage("%s came first; expected Hello", m.Type()))
	}
	version := min(hello.Max, wire.Version)
	if hello.Min > hello.Max || version < wire.MinVersion || version < hello.Min {
		e := refusal(errs.Unsupported, wire.CodeVersion,
			fmt.Sprintf("the client speaks versions %d to %d, the server %d to %d", hello.Min, hello.Max, wire.MinVersion,
				wire.Version),
			"use a client and a server of the same release")
		_ = c.refuse(h, e)
		return false
	}
	ch := &wire.Challenge{Version: version, Store: c.s.opts.StoreID, Nonce: nonce()}
	if c.reply(h, ch, nil) != nil {
		return false
	}
	if h, m, why = c.receive(time.Until(deadline)); why != nil || m == nil {
		return c.lost(why)
	}
	proof, ok := m.(*wire.Proof)
	if !ok {
		return c.lost(badMessage("%s came after Hello; expected Proof", m.Type()))
	}
	// An unknown key takes the same work as a known one, so that the time does not reveal which keys exist.
	secret, known := c.s.opts.Secret(proof.AccessKey)
	if !known {
		secret = c.s.decoy
	}
	if right := wire.EqualMAC(wire.ClientMAC(secret, ch, proof), proof.MAC); !right || !known {
		c.s.count.loginsRefused.Add(1)
		c.s.warn("a login was refused", c.who(proof.AccessKey, hello.Agent)...)
		_ = c.refuse(h, refuseLogin())
		return false
	}
	// This check comes after the MAC, so that a client without the secret learns nothing about it.
	if e := c.unrelayed(proof); e != nil {
		c.s.count.loginsRefused.Add(1)
		c.s.warn("a login was relayed", append(c.who(proof.AccessKey, hello.Agent), slog.String("reason", e.Message))...)
		_ = c.refuse(h, e)
		return false
	}
	if e := c.s.loggedIn(c, proof.AccessKey); e != nil {
		c.s.count.loginsRefused.Add(1)
		_ = c.refuse(h, e)
		return false
	}
	c.secret = secret
	c.s.count.logins.Add(1)
	g := c.s.greeting
	g.MAC = wire.ServerMAC(secret, ch, proof)
	if why := c.s.opts.Reopenable; why != "" && (c.peer.UID == 0 || int(c.peer.UID) == os.Geteuid()) {
		g.Notes = append(g.Notes, cut("what this user is handed to read it can open for writing, and so change objects: "+why,
			wire.MaxText))
		// Once for root and once for the server's own user.
		if _, told := c.s.told.LoadOrStore(c.peer.UID, true); !told {
			c.s.warn("a client can open for writing what it is handed to read: it is root or the server's own user",
				append(c.who(proof.AccessKey, hello.Agent), slog.String("reason", why))...)
		}
	}
	if c.reply(h, &g, nil) != nil {
		return false
	}
	c.s.opts.Log.Info("client logged in", c.who(proof.AccessKey, hello.Agent)...)
	return true
}

// unrelayed returns an error if the client's proof names another server end than this connection's, or nil.
func (c *conn) unrelayed(proof *wire.Proof) *wire.Error {
	var own wire.Binding
	var err error
	if failed := c.raw.Control(func(fd uintptr) { own, err = channel.Own(int(fd), proof.Binding.Kind) }); failed != nil {
		err = failed
	}
	switch {
	case errs.Is(err, errs.Invalid):
		return badMessage("%s", text(err))
	case err != nil:
		return refusal(errs.Unsupported, wire.CodeUnsupported,
			"this server's kernel does not tell its own end of the connection: "+text(err),
			"load the kernel module unix_diag for the client, or use the S3 endpoint")
	case own != proof.Binding:
		return refusal(errs.Permission, wire.CodeRelayed,
			fmt.Sprintf("the client is not connected to this server: process %d of user %d passes its login on", c.peer.PID,
				c.peer.UID),
			"find out which process listens on the socket that the client uses")
	}
	return nil
}

// lost ends a connection that did not log in. It always returns false.
func (c *conn) lost(why *wire.Error) bool {
	if why != nil {
		c.s.count.loginsRefused.Add(1)
		c.s.warn("a login was refused", append(c.who("", ""), slog.String("reason", why.Message))...)
		c.farewell(why)
	}
	return false
}

func (c *conn) who(accessKey, agent string) []any {
	return []any{"access_key", accessKey, "pid", c.peer.PID, "uid", c.peer.UID, "gid", c.peer.GID, "agent",
		cut(agent, 128)}
}

// refuseLogin returns the same error for an unknown key and for a wrong secret, so that it does not reveal which keys
// exist.
func refuseLogin() *wire.Error {
	return refusal(errs.Permission, wire.CodeAccessDenied, "the access key is not known, or its secret is another one",
		"check the access key and its secret: nebulaio user list shows the keys")
}

func nonce() (n [wire.NonceSize]byte) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}

// nonceText returns a random text that cannot be guessed.
func nonceText() string { return rand.Text() }

// note counts a refusal, and logs it if operators need to know of it.
func (s *Server) note(c *conn, e *wire.Error) {
	s.count.refused(e.Code)
	if log := s.opts.Log; log.Enabled(context.Background(), slog.LevelDebug) {
		log.Debug("refused", "code", e.Code, "access_key", c.account, "pid", c.peer.PID, "reason", e.Message)
	}
	switch e.Code {
	case wire.CodeInternal, wire.CodeDamaged, wire.CodeTooManyFiles:
		s.tell(slog.LevelError, "a request failed", "code", e.Code, "access_key", c.account, "pid", c.peer.PID, "error",
			e.Message)
	case wire.CodeAccessDenied, wire.CodeDeviceNotAllowed, wire.CodeBadMessage, wire.CodeTooManyConnections,
		wire.CodeTooManyHandles:
		if c.client != nil || e.Code == wire.CodeTooManyConnections {
			s.warn("a request was refused", "code", e.Code, "access_key", c.account, "pid", c.peer.PID, "uid", c.peer.UID,
				"reason", e.Message, "fix", e.Fix)
		}
	}
}

// trace logs a client's action on an object at level debug. It costs nothing if that level is off.
func (c *conn) trace(msg, bucket, key string, bytes int64) {
	if log := c.s.opts.Log; log.Enabled(context.Background(), slog.LevelDebug) {
		log.Debug(msg, "bucket", bucket, "key", key, "bytes", bytes, "access_key", c.account, "pid", c.peer.PID)
	}
}

// warn logs a refusal as a warning.
func (s *Server) warn(msg string, args ...any) { s.tell(slog.LevelWarn, msg, args...) }

// tell logs a line that a client caused, unless clients have caused too many lines in this second.
func (s *Server) tell(level slog.Level, msg string, args ...any) {
	ok, left := s.refusals.take(time.Now())
	if !ok {
		return
	}
	if left > 0 {
		args = append(args, "not_logged_before", left)
	}
	s.opts.Log.Log(context.Background(), level, msg, args...)
}

// rationed limits log lines to linesPerSecond.
type rationed struct {
	mu      sync.Mutex
	second  int64
	taken   int
	skipped int64
}

const linesPerSecond = 20

// take reports whether a line may be written now, and how many lines were skipped since the last one.
func (r *rationed) take(now time.Time) (ok bool, skipped int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sec := now.Unix(); sec != r.second {
		r.second, r.taken = sec, 0
	}
	if r.taken == linesPerSecond {
		r.skipped++
		return false, 0
	}
	r.taken++
	skipped, r.skipped = r.skipped, 0
	return true, skipped
}
