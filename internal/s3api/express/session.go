// SPDX-License-Identifier: Apache-2.0

package express

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Mode tells what a session allows.
type Mode string

// The modes of a session.
const (
	ReadOnly  Mode = "ReadOnly"
	ReadWrite Mode = "ReadWrite"
)

// Session is the permission to use one directory bucket for a time. A Session is read-only after it was made.
type Session struct {
	Account string `json:"a"` // access key of the account that began the session
	Bucket  string `json:"b"`
	// Created is the time at which the bucket was created, in Unix milliseconds. If the bucket did not exist when the
	// session began, Created is 0.
	Created int64  `json:"c,omitempty"`
	Mode    Mode   `json:"m"`
	Ends    int64  `json:"e"` // Unix milliseconds
	Proof   []byte `json:"p"` // made from the account's secret, so that a session ends when the secret changes

	Access string `json:"-"` // access key of the session
	Secret string `json:"-"`
	Token  string `json:"-"`

	mu   sync.Mutex
	keys map[scope][]byte // signing keys, at most mostKeys
	// proven is the secret that was compared with Proof last.
	proven string
}

// mostKeys limits the scopes for which a session keeps signing keys.
const mostKeys = 8

// scope names what a signing key is for.
type scope struct{ day, region, service string }

// Key returns the key that verifies the signatures of the session of a day, for a region and a service.
func (s *Session) Key(day, region, service string) []byte {
	of := scope{day, region, service}
	s.mu.Lock()
	defer s.mu.Unlock()
	if key, ok := s.keys[of]; ok {
		return key
	}
	if len(s.keys) >= mostKeys {
		clear(s.keys)
	}
	if s.keys == nil {
		s.keys = map[scope][]byte{}
	}
	key := DeriveKey(s.Secret, day, region, service)
	s.keys[scope{strings.Clone(day), strings.Clone(region), strings.Clone(service)}] = key
	return key
}

// Proves reports whether the account that began the session still has this secret.
func (s *Session) Proves(k *Keeper, secret string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proven != "" && s.proven == secret {
		return true
	}
	if !hmac.Equal(s.Proof, k.ProofOf(secret)) {
		return false
	}
	s.proven = secret
	return true
}

// mostSessions limits the sessions that a Keeper remembers in each of its two generations. A session that was forgotten
// is decrypted again.
const mostSessions = 4096

// maxToken is the longest token that is decrypted.
const maxToken = 4096

// Keeper begins sessions and finds them by their tokens. A token holds its session, encrypted, so that sessions survive
// a restart of the server. A Keeper is safe for concurrent use.
type Keeper struct {
	seal cipher.AEAD
	key  []byte
	now  func() time.Time

	mu       sync.Mutex
	new, old map[string]*Session // by token; when new is full, it becomes old
}

// KeySize is the size in bytes of the key of a Keeper.
const KeySize = 32

// NewKey returns a random key for a Keeper.
func NewKey() []byte {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // never fails: it ends the process instead
	return key
}

// NewKeeper returns a Keeper with a key of KeySize bytes. Two Keepers with the same key know each other's sessions. The
// function now returns the time.
func NewKeeper(key []byte, now func() time.Time) (*Keeper, error) {
	block, err := aes.NewCipher(derive(key, "seal"))
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Keeper{seal: seal, key: key, now: now, new: map[string]*Session{}}, nil
}

func derive(key []byte, what string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(what))
	return mac.Sum(nil)
}

// ProofOf returns the Proof of sessions of an account with this secret.
func (k *Keeper) ProofOf(secret string) []byte { return derive(k.key, "proof\x00"+secret)[:16] }

// Begin begins a session. The caller sets the exported fields up to Mode; Begin sets the others.
func (k *Keeper) Begin(s *Session, secret string, lasts time.Duration) error {
	s.Ends = k.now().Add(lasts).UnixMilli()
	s.Proof = k.ProofOf(secret)
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	s.name(k, base64.RawURLEncoding.EncodeToString(k.seal.Seal(nil, nil, text, nil)))
	k.keep(s)
	return nil
}

// name sets the token, and the keys that follow from it.
func (s *Session) name(k *Keeper, token string) {
	s.Token = token
	s.Access = "NBX" + base32.StdEncoding.EncodeToString(derive(k.key, "access\x00"+token)[:10])
	s.Secret = base64.RawURLEncoding.EncodeToString(derive(k.key, "secret\x00"+token))
}

// Find returns the session of a token. Find fails with a *Refusal if the token is not one of ours or has expired.
func (k *Keeper) Find(token string) (*Session, error) {
	k.mu.Lock()
	s := k.new[token]
	if s == nil {
		s = k.old[token]
	}
	k.mu.Unlock()
	if s == nil {
		if len(token) > maxToken {
			return nil, invalidToken()
		}
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			return nil, invalidToken()
		}
		text, err := k.seal.Open(nil, nil, raw, nil)
		if err != nil {
			return nil, invalidToken()
		}
		s = &Session{}
		if err := json.Unmarshal(text, s); err != nil {
			return nil, invalidToken()
		}
		s.name(k, token)
		k.keep(s)
	}
	if k.now().UnixMilli() >= s.Ends {
		return nil, refuse(http.StatusBadRequest, "ExpiredToken", "The provided token has expired.")
	}
	return s, nil
}

func invalidToken() error {
	return refuse(http.StatusBadRequest, "InvalidToken", "The provided token is malformed or otherwise invalid.")
}

// keep remembers a session.
func (k *Keeper) keep(s *Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.new) >= mostSessions {
		k.new, k.old = map[string]*Session{}, k.new
	}
	k.new[s.Token] = s
}
