// SPDX-License-Identifier: Apache-2.0

// Package issuer is a small OpenID Connect issuer for tests. The issuer signs real tokens for anybody who asks,
// publishes its keys, and rotates them on demand.
package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer signs tokens. An Issuer is safe for concurrent use.
type Issuer struct {
	url string

	mu      sync.Mutex
	keys    []jose.JSONWebKey // private keys; the last one signs
	hidden  int               // number of first keys that are not published
	made    int               // number of keys that were ever made
	fetches int               // of the published keys
	down    bool
}

// New returns an Issuer with one key. The parameter url is its address, which its tokens name as their issuer.
func New(url, algorithm string) (*Issuer, error) {
	i := &Issuer{url: url}
	return i, i.Rotate(algorithm, false)
}

// Rotate makes a new key, which signs all later tokens. If withdraw is true, the older keys are published no more.
func (i *Issuer) Rotate(algorithm string, withdraw bool) error {
	key, err := newKey(algorithm)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	if withdraw {
		i.hidden = len(i.keys)
	}
	i.keys = append(i.keys, jose.JSONWebKey{Key: key, KeyID: "key-" + strconv.Itoa(i.made), Algorithm: algorithm,
		Use: "sig"})
	return nil
}

func newKey(algorithm string) (crypto.PrivateKey, error) {
	switch jose.SignatureAlgorithm(algorithm) {
	case jose.RS256, jose.PS256:
		return rsa.GenerateKey(rand.Reader, 2048)
	case jose.ES256:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.EdDSA:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("no keys for %q; expected RS256, PS256, ES256 or EdDSA", algorithm)
}

// Token is the wish for a token.
type Token struct {
	Subject  string         `json:"sub"`
	Audience []string       `json:"aud"`
	Issuer   string         `json:"iss,omitempty"` // another issuer than the real one, to be refused
	Seconds  int            `json:"seconds"`       // of its validity; a negative number makes a token that has expired
	Key      string         `json:"key,omitempty"` // ID of an older key that signs; empty means the newest
	Claims   map[string]any `json:"claims,omitempty"`
}

// Sign returns a signed token.
func (i *Issuer) Sign(w Token) (string, error) {
	i.mu.Lock()
	key := i.keys[len(i.keys)-1]
	for _, k := range i.keys {
		if k.KeyID == w.Key {
			key = k
		}
	}
	i.mu.Unlock()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", err
	}
	now := time.Now()
	claims := map[string]any{}
	for name, v := range w.Claims {
		claims[name] = v
	}
	claims["sub"], claims["aud"], claims["iss"] = w.Subject, w.Audience, i.url
	if w.Issuer != "" {
		claims["iss"] = w.Issuer
	}
	claims["iat"] = now.Add(-time.Duration(max(0, 1-w.Seconds)) * time.Second).Unix()
	claims["exp"] = now.Add(time.Duration(w.Seconds) * time.Second).Unix()
	return jwt.Signed(signer).Claims(claims).Serialize()
}

// Fetches returns how often the published keys were fetched.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// SetDown makes the Issuer refuse to publish its keys, or publish them again.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// ServeHTTP publishes the description and the keys, and takes orders of tests: POST /token with a Token in JSON, and
// POST /rotate with the arguments alg and withdraw.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	down := i.down
	i.mu.Unlock()
	switch {
	case r.Method == http.MethodGet && down:
		http.Error(w, "the issuer is down", http.StatusServiceUnavailable)
	case r.Method == http.MethodGet && r.URL.Path == "/.well-known/openid-configuration":
		reply(w, map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys", "token_endpoint": i.url + "/token",
			"id_token_signing_alg_values_supported": []string{"RS256", "PS256", "ES256", "EdDSA"},
			"subject_types_supported":               []string{"public"}, "response_types_supported": []string{"id_token"}})
	case r.Method == http.MethodGet && r.URL.Path == "/keys":
		reply(w, i.published())
	case r.Method == http.MethodPost && r.URL.Path == "/token":
		var wish Token
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&wish); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		token, err := i.Sign(wish)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, map[string]any{"id_token": token, "token_type": "Bearer", "expires_in": wish.Seconds})
	case r.Method == http.MethodPost && r.URL.Path == "/rotate":
		if err := i.Rotate(r.URL.Query().Get("alg"), r.URL.Query().Get("withdraw") == "true"); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, i.published())
	default:
		http.NotFound(w, r)
	}
}

// published returns the public keys.
func (i *Issuer) published() jose.JSONWebKeySet {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fetches++
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for n := i.hidden; n < len(i.keys); n++ {
		set.Keys = append(set.Keys, i.keys[n].Public())
	}
	return set
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that left needs no reply
}
