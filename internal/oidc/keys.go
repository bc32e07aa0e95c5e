// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	// mostKeys is the largest number of keys of an issuer.
	mostKeys = 64
	// smallestRSA is the smallest accepted RSA key in bits.
	smallestRSA = 2048
	// fetches is the number of fetches that tokens with unknown keys may cause at once.
	fetches = 4
	// refill is the time after which such tokens may cause another fetch.
	refill = 15 * time.Second
	// stale is the time for which old keys are used after their age, if the issuer does not answer.
	stale = time.Hour
	// failedFor is the time for which a failed fetch is not repeated while there are keys.
	failedFor = 10 * time.Second
)

// keySet holds the keys of an issuer.
//
// A token with an unknown key makes the keySet fetch the keys, because the issuer may have rotated them. A fetch
// replaces all keys, so that a withdrawn key counts no more. Anybody can send tokens with unknown keys, so a bucket of
// permits limits these fetches.
type keySet struct {
	o     Options
	fetch func(ctx context.Context) ([]jose.JSONWebKey, time.Duration, error)

	loading sync.Mutex // held during a fetch, so that many tokens cause one fetch

	mu       sync.Mutex // guards the fields below, never held during a fetch
	keys     []jose.JSONWebKey
	fetched  time.Time // when the keys were fetched; zero if never
	maxAge   time.Duration
	tried    time.Time // of the last failed fetch
	permits  int
	refilled time.Time
}

func newKeySet(o Options) *keySet {
	f := &fetcher{client: o.Client, issuer: o.Issuer}
	return &keySet{o: o, fetch: f.keys, permits: fetches}
}

// verify checks the signature of a token, and decodes its claims.
func (k *keySet) verify(ctx context.Context, t *jwt.JSONWebToken, into ...any) error {
	keys, err := k.current(ctx)
	if err != nil {
		return err
	}
	found, err := verifyWith(keys, t, into...)
	if err == nil || found {
		return err
	}
	// No key has the ID, or the token names no ID and no key made its signature: the issuer may have new keys.
	_, err = verifyWith(k.renewed(ctx, keys), t, into...)
	return err
}

// verifyWith checks the signature of a token with keys. It reports whether the token names one of the keys.
func verifyWith(keys []jose.JSONWebKey, t *jwt.JSONWebToken, into ...any) (found bool, err error) {
	h := t.Headers[0]
	err = invalid("the issuer has no key %.64q for %s", h.KeyID, h.Algorithm)
	for i := range keys {
		key := &keys[i]
		if h.KeyID != "" && key.KeyID != h.KeyID || key.Algorithm != "" && key.Algorithm != h.Algorithm {
			continue
		}
		found = h.KeyID != ""
		if failed := t.Claims(key.Key, into...); failed != nil {
			err = invalid("key %.64q of the issuer did not make its signature, or its claims are malformed", key.KeyID)
			continue
		}
		return true, nil
	}
	return found, err
}

// current returns the keys, after a fetch if they are too old.
func (k *keySet) current(ctx context.Context) ([]jose.JSONWebKey, error) {
	now := k.o.Now()
	if keys, fresh, _ := k.known(now); fresh {
		return keys, nil
	}
	k.loading.Lock()
	defer k.loading.Unlock()
	keys, fresh, usable := k.known(now)
	if fresh {
		return keys, nil // fetched while this token waited
	}
	if !usable && !k.permit(now) {
		return nil, fail(ErrUnreachable, "the keys of %s could not be fetched; the next try is in a few seconds", k.o.Issuer)
	}
	got, err := k.load(ctx, now)
	if err != nil && usable {
		return keys, nil
	}
	return got, err
}

// known returns the keys. The keys are fresh if no fetch is due, and usable if they may be used when a fetch fails.
func (k *keySet) known(now time.Time) (keys []jose.JSONWebKey, fresh, usable bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fetched.IsZero() {
		return nil, false, false
	}
	usable = now.Before(k.fetched.Add(k.maxAge + stale))
	fresh = now.Before(k.fetched.Add(k.maxAge)) || usable && now.Before(k.tried.Add(failedFor))
	return k.keys, fresh, usable
}

// renewed fetches the keys if nobody else has fetched them since seen, and if there is a permit.
func (k *keySet) renewed(ctx context.Context, seen []jose.JSONWebKey) []jose.JSONWebKey {
	k.loading.Lock()
	defer k.loading.Unlock()
	now := k.o.Now()
	keys, _, _ := k.known(now)
	same := len(seen) == len(keys) && (len(seen) == 0 || &seen[0] == &keys[0])
	if !same || !k.permit(now) {
		return keys
	}
	if got, err := k.load(ctx, now); err == nil {
		return got
	}
	return keys // the token has a key that is not known
}

// permit takes a permit for a fetch.
func (k *keySet) permit(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if more := int(now.Sub(k.refilled) / refill); more > 0 {
		k.permits, k.refilled = min(fetches, k.permits+min(more, fetches)), now
	}
	if k.permits == 0 {
		return false
	}
	k.permits--
	return true
}

// load fetches the keys. The caller holds loading.
func (k *keySet) load(ctx context.Context, now time.Time) ([]jose.JSONWebKey, error) {
	// The fetch serves all tokens that wait for it, so that one client that leaves does not end it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
	defer cancel()
	keys, age, err := k.fetch(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.tried = now
		return nil, err
	}
	if age <= 0 || age > k.o.KeysMaxAge {
		age = k.o.KeysMaxAge
	}
	k.keys, k.maxAge, k.fetched, k.tried = keys, max(age, time.Minute), now, time.Time{}
	return keys, nil
}

// parseKeys reads a JSON Web Key Set. It leaves out keys that are not for signatures, keys of unknown kinds, symmetric
// keys and RSA keys that are too short.
func parseKeys(text []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fail(ErrUnreachable, "the issuer's keys are no JSON Web Key Set: %v", err)
	}
	if len(set.Keys) > mostKeys {
		return nil, fail(ErrUnreachable, "the issuer has %d keys; expected %d at most", len(set.Keys), mostKeys)
	}
	keys := []jose.JSONWebKey{}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(raw, &key); err != nil {
			continue // of a kind that this server does not know
		}
		if !key.IsPublic() || !key.Valid() || key.Use != "" && key.Use != "sig" {
			continue
		}
		if r, ok := key.Key.(*rsa.PublicKey); ok && r.N.BitLen() < smallestRSA {
			continue
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fail(ErrUnreachable, "the issuer has no key for signatures among its %d keys", len(set.Keys))
	}
	return keys, nil
}
