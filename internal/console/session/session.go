// SPDX-License-Identifier: Apache-2.0

// Package session keeps the sessions of users who have logged in to the console with access keys.
//
// A session is a random token in a cookie. The server keeps only the hash of the token, in memory. A session ends after
// a time without use, after a longest lifetime, at a log out, and when the account is removed or gets a new secret.
package session

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// Idle, Lifetime and Most are the limits of sessions: the time without use, the longest lifetime, and the largest
// number of sessions at a time. If there are more sessions, the one that was unused for longest ends.
const (
	Idle     = 30 * time.Minute
	Lifetime = 12 * time.Hour
	Most     = 1024
)

// Accounts finds the accounts that may log in. An iam.Service implements Accounts.
type Accounts interface {
	Get(accessKey string) (iam.Account, error)
}

// Session is the session of one user. The account is that of the latest look at the accounts, so that a change of its
// role has effect at once.
type Session struct {
	Account iam.Account
	CSRF    string // the token that requests with effects repeat in a header
	Expires time.Time
	// Done is closed when the session has ended.
	Done <-chan struct{}
}

// ErrNone and ErrKeys are the reasons of Find and LogIn.
var (
	// ErrNone means that there is no session with the token, or that it has ended.
	ErrNone = errs.New(errs.Permission, "use the console", "", "you are not logged in, or your session has ended").
		WithFix("log in with your access key")
	// ErrKeys means that the access key or the secret key is wrong.
	ErrKeys = errs.New(errs.Permission, "log in", "", "the access key or the secret key is wrong").
		WithFix("check both keys; nebulaio user list shows the accounts")
)

// Table holds all sessions. A Table is safe for concurrent use.
type Table struct {
	accounts Accounts
	now      func() time.Time
	guard    *guard

	mu  sync.Mutex
	all map[[sha256.Size]byte]*entry
}

type entry struct {
	access string
	secret [sha256.Size]byte
	csrf   string
	made   time.Time
	used   time.Time
	done   chan struct{}
}

// New returns a Table without sessions. The parameter now is the clock, time.Now outside of tests.
func New(accounts Accounts, now func() time.Time) *Table {
	return &Table{accounts: accounts, now: now, guard: newGuard(now), all: map[[sha256.Size]byte]*entry{}}
}

// LogIn compares keys with the accounts and begins a session. The result token belongs into the cookie, and is always
// new. The parameter from is the address of the client, for the limit of wrong keys. LogIn fails with ErrKeys, or with
// a *TooMany if there were too many wrong keys.
func (t *Table) LogIn(accessKey, secretKey, from string) (token string, s Session, err error) {
	if err := t.guard.try(accessKey, from); err != nil {
		return "", Session{}, err
	}
	account, err := t.accounts.Get(accessKey)
	want, got := sha256.Sum256([]byte(account.Secret)), sha256.Sum256([]byte(secretKey))
	// Both hashes are compared also for an unknown key, so that the time does not tell which keys exist.
	same := subtle.ConstantTimeCompare(want[:], got[:]) == 1
	if err != nil || !same || secretKey == "" {
		return "", Session{}, ErrKeys
	}
	t.guard.succeeded(accessKey, from)
	token = random()
	now := t.now()
	e := &entry{access: account.AccessKey, secret: want, csrf: random(), made: now, used: now, done: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.makeRoom(now)
	t.all[sha256.Sum256([]byte(token))] = e
	return token, e.session(account), nil
}

// makeRoom ends expired sessions, and the one that was unused for longest if the table is full.
func (t *Table) makeRoom(now time.Time) {
	var oldest [sha256.Size]byte
	var found *entry
	for id, e := range t.all {
		if e.expired(now) {
			t.end(id, e)
		} else if found == nil || e.used.Before(found.used) {
			oldest, found = id, e
		}
	}
	if len(t.all) >= Most && found != nil {
		t.end(oldest, found)
	}
}

func (t *Table) end(id [sha256.Size]byte, e *entry) {
	delete(t.all, id)
	close(e.done)
}

// Find returns the session with a token, and counts as a use of the session. Find fails with ErrNone.
func (t *Table) Find(token string) (Session, error) { return t.find(token, true) }

// Look returns the session with a token as Find does, but does not count as a use. A page that updates itself does not
// keep a session alive.
func (t *Table) Look(token string) (Session, error) { return t.find(token, false) }

func (t *Table) find(token string, use bool) (Session, error) {
	if token == "" {
		return Session{}, ErrNone
	}
	id := sha256.Sum256([]byte(token))
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.all[id]
	if !ok {
		return Session{}, ErrNone
	}
	account, err := t.accounts.Get(e.access)
	if e.expired(now) || err != nil || sha256.Sum256([]byte(account.Secret)) != e.secret {
		t.end(id, e)
		return Session{}, ErrNone
	}
	if use {
		e.used = now
	}
	return e.session(account), nil
}

// End ends the session with a token. A token without a session is no error.
func (t *Table) End(token string) {
	id := sha256.Sum256([]byte(token))
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.all[id]; ok {
		t.end(id, e)
	}
}

// Sweep ends the sessions that have expired, or whose account was removed or has a new secret.
func (t *Table) Sweep() {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, e := range t.all {
		account, err := t.accounts.Get(e.access)
		if e.expired(now) || err != nil || sha256.Sum256([]byte(account.Secret)) != e.secret {
			t.end(id, e)
		}
	}
}

// Len returns the number of sessions, including those that have expired and were not removed yet.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

func (e *entry) expires() time.Time {
	idle, end := e.used.Add(Idle), e.made.Add(Lifetime)
	if end.Before(idle) {
		return end
	}
	return idle
}

func (e *entry) expired(now time.Time) bool { return !now.Before(e.expires()) }

func (e *entry) session(a iam.Account) Session {
	end := e.expires()
	if !a.Expires.IsZero() && a.Expires.Before(end) {
		end = a.Expires // Find refuses temporary keys that have expired
	}
	return Session{Account: a, CSRF: e.csrf, Expires: end, Done: e.done}
}

// random returns 256 random bits as text for a cookie or a header.
func random() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}
