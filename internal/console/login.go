// SPDX-License-Identifier: Apache-2.0

package console

import (
	"errors"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/nebulaio/nebulaio/internal/console/session"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// keys is the body of a log in.
type keys struct {
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
	// SessionToken is the token of temporary keys. It may be left out; if it is given, it has to be right.
	SessionToken string `json:"session_token"`
}

// sessionReply describes the session of a user to the pages.
type sessionReply struct {
	User     string    `json:"user"`
	Role     iam.Role  `json:"role"`
	Admin    bool      `json:"admin"`
	CSRF     string    `json:"csrf"`
	Expires  time.Time `json:"expires"`
	Idle     int       `json:"idle_seconds"`
	Endpoint string    `json:"endpoint"`
	Region   string    `json:"region"`
	Version  string    `json:"version"`
	Pages    []string  `json:"pages"`
}

// logIn answers POST session.
func (c *Console) logIn(w http.ResponseWriter, r *http.Request) {
	parts := c.parts.Load()
	if parts == nil {
		fail(w, errNotReady)
		return
	}
	var k keys
	if err := decodeBody(w, r, &k); err != nil {
		fail(w, err)
		return
	}
	from := r.RemoteAddr
	if host, _, err := net.SplitHostPort(from); err == nil {
		from = host
	}
	if k.SessionToken != "" {
		if _, err := parts.Accounts.Authentic(k.AccessKey, k.SessionToken); errors.Is(err, iam.ErrWrongToken) {
			k.SecretKey = "" // refused and counted as wrong keys
		}
	}
	token, user, err := parts.sessions.LogIn(k.AccessKey, k.SecretKey, from)
	var many *session.TooMany
	switch {
	case errors.As(err, &many):
		c.opts.Log.Warn("refused a log in after too many wrong keys", "remote", from)
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(many.After.Seconds()))))
		refuse(w, http.StatusTooManyRequests, "SlowDown", "there were too many wrong keys", "wait, then try again")
		return
	case err != nil:
		c.opts.Log.Warn("refused a log in with wrong keys", "remote", from)
		refuse(w, http.StatusUnauthorized, "BadKeys", "the access key or the secret key is wrong", "check both keys")
		return
	}
	parts.sessions.End(c.token(r)) // a browser has one session at a time
	c.setCookie(w, token)
	c.opts.Log.Info("logged in", "access_key", user.Account.AccessKey, "remote", from)
	x := accountPage{&call{Console: c, attached: parts, user: user, w: w, r: r}}
	writeJSON(w, http.StatusOK, x.describe())
}

// session answers GET session.
func (c accountPage) session() (any, error) { return c.describe(), nil }

// logOut answers DELETE session.
func (c accountPage) logOut() (any, error) {
	c.sessions.End(c.token)
	c.setCookie(c.w, "")
	return nil, nil
}

func (c accountPage) describe() sessionReply {
	pages := []string{"overview", "buckets", "transfers"}
	if c.admin() {
		pages = append(pages, "users", "machine", "benchmarks", "cluster", "config")
	}
	return sessionReply{User: c.user.Account.AccessKey, Role: c.user.Account.Role, Admin: c.admin(), CSRF: c.user.CSRF,
		Expires: c.user.Expires, Idle: int(session.Idle.Seconds()), Endpoint: c.Endpoint.String(),
		Region: c.opts.Config.Region, Version: c.opts.Version, Pages: pages}
}
