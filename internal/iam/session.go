// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// sessionKind is the kind of the store's records that hold sessions.
const sessionKind = "session"

// SessionPrefix begins the access key of every session, and of no other account that this server makes.
const SessionPrefix = "ASIA"

// ErrTooManySessions says that there are as many sessions as the server may have.
var ErrTooManySessions = errors.New("there are too many sessions")

// sweepEvery is the shortest time between two removals of expired sessions.
const sweepEvery = time.Minute

// sessionRecord is a session in the store's records.
type sessionRecord struct {
	Account
	// Proof is made from the secret of the parent, so that the sessions of root end when its secret changes.
	Proof []byte `json:"proof,omitempty"`
}

// proofOf returns the proof of a parent with a secret.
func proofOf(session, secret string) []byte {
	sum := sha256.Sum256([]byte("session\x00" + session + "\x00" + secret))
	return sum[:16]
}

// Sessions are the sessions of a Service. All methods of Sessions are safe for concurrent use.
type Sessions struct{ s *Service }

// Sessions returns the sessions of the Service.
func (s *Service) Sessions() Sessions { return Sessions{s} }

// UseClock sets the clock that decides whether keys have expired. Tests call UseClock before the Service is used.
func (s *Service) UseClock(now func() time.Time) { s.now = now }

// Now returns the time by which keys expire.
func (s *Service) Now() time.Time { return s.now() }

// Begin stores a new session durably and returns it with its keys. The caller sets Parent, Expires and, if wanted,
// Policies, Groups, SessionPolicy, Claims and Description; Begin sets AccessKey, Secret, Token and Issued. The parent
// is a user, root, or a name for which Federated is true.
//
// Begin fails with ErrNoSuchAccount if the parent does not exist, and with kind Invalid if the session policy cannot be
// parsed. If there are most sessions, or if the parent has a quarter of most, Begin fails with ErrTooManySessions.
func (x Sessions) Begin(ctx context.Context, a Account, most int) (Account, error) {
	s := x.s
	const op = "begin a session of"
	a.AccessKey, a.Secret, a.Token = newSessionKeys()
	a.Issued = s.now().Truncate(time.Second)
	a.Role = RoleUser // Get returns the role of the parent
	if err := checkKey(op, a); err != nil {
		return Account{}, err
	}
	if a.Expires.IsZero() || a.Expired(s.now()) {
		return Account{}, errs.New(errs.Invalid, op, a.Parent, fmt.Sprintf("it ends at %s, expected a time in the future",
			a.Expires.UTC().Format(time.RFC3339)))
	}
	s.write.Lock()
	defer s.write.Unlock()
	r := sessionRecord{Account: a}
	if !Federated(a.Parent) {
		parent, err := s.User(a.Parent)
		if err != nil {
			return Account{}, errs.Wrap(op, a.Parent, err)
		}
		r.Proof = proofOf(a.AccessKey, parent.Secret)
	}
	if err := x.sweep(ctx); err != nil {
		return Account{}, err
	}
	if all, own := x.count(a.Parent); all >= most || own >= max(1, most/4) {
		return Account{}, &errs.Error{Kind: errs.NoMemory, Op: op, Name: a.Parent, Err: ErrTooManySessions,
			Msg: fmt.Sprintf("%d of %d sessions are in use, %d of them by this user", all, most, own),
			Fix: "wait until sessions expire, or set sts.max_sessions"}
	}
	if err := s.putRecord(ctx, sessionKind, a.AccessKey, r); err != nil {
		return Account{}, err
	}
	s.mu.Lock()
	s.keys[a.AccessKey] = a
	s.mu.Unlock()
	return s.Get(a.AccessKey)
}

// newSessionKeys returns random keys and a random token.
func newSessionKeys() (access, secret, token string) {
	var b [10 + 30 + 48]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return SessionPrefix + base32.StdEncoding.EncodeToString(b[:10]), base64.RawURLEncoding.EncodeToString(b[10:40]),
		base64.RawURLEncoding.EncodeToString(b[40:])
}

// Authentic returns the account with an access key if token is its session token. Keys without a session token need an
// empty token. Authentic fails as Get does, and with ErrWrongToken.
func (s *Service) Authentic(accessKey, token string) (Account, error) {
	a, err := s.Get(accessKey)
	if err != nil {
		return a, err
	}
	if subtle.ConstantTimeCompare([]byte(a.Token), []byte(token)) != 1 {
		return Account{}, &errs.Error{Kind: errs.Permission, Op: "use the keys", Name: a.AccessKey, Err: ErrWrongToken,
			Fix: "send the session token that came with the keys, and none with other keys"}
	}
	return a, nil
}

// ErrWrongToken says that the session token of a request does not belong to its access key.
var ErrWrongToken = errors.New("the session token is missing or wrong")

// Len returns the number of sessions, including those that have expired and were not removed yet.
func (x Sessions) Len() int {
	n, _ := x.count("")
	return n
}

// count counts all sessions, and those of one parent.
func (x Sessions) count(parent string) (all, own int) {
	x.s.mu.RLock()
	defer x.s.mu.RUnlock()
	for _, a := range x.s.keys {
		if a.Token == "" {
			continue
		}
		all++
		if a.Parent == parent {
			own++
		}
	}
	return all, own
}

// List returns the sessions that have not expired, ordered by parent, end and access key. If parent is not empty, List
// returns the sessions of this parent. The results have their secrets, which the caller must not show.
func (x Sessions) List(parent string) []Account {
	now := x.s.now()
	out := []Account{}
	x.s.mu.RLock()
	for _, a := range x.s.keys {
		if a.Token != "" && !a.Expired(now) && (parent == "" || a.Parent == parent) {
			out = append(out, a)
		}
	}
	x.s.mu.RUnlock()
	slices.SortFunc(out, func(a, b Account) int {
		return cmp.Or(strings.Compare(a.Parent, b.Parent), a.Expires.Compare(b.Expires),
			strings.Compare(a.AccessKey, b.AccessKey))
	})
	return out
}

// End ends all sessions of a user durably, and returns how many there were. If accessKey is not empty, End ends only
// the session with this access key, and fails with ErrNoSuchAccount if the user has no such session. The keys of an
// ended session are refused from then on, also after a restart.
func (x Sessions) End(ctx context.Context, parent, accessKey string) (int, error) {
	x.s.write.Lock()
	defer x.s.write.Unlock()
	if accessKey == "" {
		n, err := x.endOf(ctx, parent)
		x.s.changed()
		return n, err
	}
	n, err := x.endAll(ctx, func(a Account) bool { return a.Parent == parent && a.AccessKey == accessKey })
	x.s.changed()
	if err == nil && n == 0 {
		err = missing("end the session", accessKey)
	}
	return n, err
}

// endOf ends all sessions of a user. The caller holds the lock of changes.
func (x Sessions) endOf(ctx context.Context, parent string) (int, error) {
	return x.endAll(ctx, func(a Account) bool { return a.Parent == parent })
}

// sweep removes expired sessions from time to time. The caller holds the lock of changes.
func (x Sessions) sweep(ctx context.Context) error {
	now := x.s.now()
	if now.Before(x.s.swept.Add(sweepEvery)) {
		return nil
	}
	x.s.swept = now
	_, err := x.endAll(ctx, func(a Account) bool { return a.Expired(now) })
	return err
}

// endAll removes the sessions for which f returns true. The caller holds the lock of changes.
func (x Sessions) endAll(ctx context.Context, f func(Account) bool) (int, error) {
	var keys []string
	x.s.mu.RLock()
	for _, a := range x.s.keys {
		if a.Token != "" && f(a) {
			keys = append(keys, a.AccessKey)
		}
	}
	x.s.mu.RUnlock()
	for i, key := range keys {
		if err := x.s.records.DeleteRecord(ctx, sessionKind, key); err != nil && !errors.Is(err, object.ErrNoSuchRecord) {
			return i, err
		}
		x.s.mu.Lock()
		delete(x.s.keys, key)
		x.s.mu.Unlock()
		x.s.subjects.Delete(key)
	}
	return len(keys), nil
}

// read reads the sessions. Those of root that began with an earlier secret expire.
func (x Sessions) read(ctx context.Context) error {
	s := x.s
	return s.readRecords(ctx, sessionKind, func(name string, raw []byte) error {
		var r sessionRecord
		if err := json.Unmarshal(raw, &r); err != nil {
			return errs.New(errs.Corrupt, "read session", name, err.Error())
		}
		if err := checkKey("read session", r.Account); err != nil || r.AccessKey != name || r.Token == "" ||
			!strings.HasPrefix(name, SessionPrefix) {
			return errs.New(errs.Corrupt, "read session", name, fmt.Sprintf("the record is of %q: %v", r.AccessKey, err))
		}
		if r.Parent == s.root.AccessKey && !bytes.Equal(r.Proof, proofOf(name, s.root.Secret)) {
			r.Expires = time.Unix(0, 0) // begun with an earlier secret
		}
		s.keys[name] = r.Account // the next sweep removes expired ones with their records
		return nil
	})
}
