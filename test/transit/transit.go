// SPDX-License-Identifier: Apache-2.0

// Package transit is a small server of the transit engine's HTTP API of HashiCorp Vault and OpenBao, for tests.
//
// The server has real keys with versions, encrypts with AES-256-GCM and associated data, and checks tokens. The
// requests, replies and errors of the server have the form that Vault documents.
package transit

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Server is an http.Handler with the transit engine at /v1/transit. All methods are safe for concurrent use.
type Server struct {
	mu     sync.Mutex
	token  string
	sealed bool
	keys   map[string][]cipher.AEAD // versions of each key, from 1
	asked  int
}

// New returns a server that accepts one token, with one key.
func New(token, key string) *Server {
	s := &Server{token: token, keys: map[string][]cipher.AEAD{}}
	s.Rotate(key)
	return s
}

// Rotate adds a version to a key, or makes the key.
func (s *Server) Rotate(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		panic(err) // the length is right
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the block size that GCM needs
	}
	s.keys[key] = append(s.keys[key], aead)
}

// SetToken changes the accepted token.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// Seal makes the server answer 503, as a sealed Vault does. Seal(false) ends it.
func (s *Server) Seal(sealed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = sealed
}

// Asked returns how many requests the server has answered.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	w.Header().Set("Content-Type", "application/json")
	switch {
	case s.sealed:
		refuse(w, http.StatusServiceUnavailable, "Vault is sealed")
		return
	case r.Header.Get("X-Vault-Token") != s.token:
		refuse(w, http.StatusForbidden, "permission denied")
		return
	}
	what, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/transit/"), "/")
	versions, ok := s.keys[name]
	if !ok {
		if what == "keys" {
			refuse(w, http.StatusNotFound)
			return
		}
		refuse(w, http.StatusBadRequest, "encryption key not found")
		return
	}
	var in struct {
		Plaintext  string `json:"plaintext"`
		Ciphertext string `json:"ciphertext"`
		Data       string `json:"associated_data"`
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	data, err := base64.StdEncoding.DecodeString(in.Data)
	if err != nil {
		refuse(w, http.StatusBadRequest, "failed to base64-decode associated_data")
		return
	}
	switch r.Method + " " + what {
	case "GET keys":
		reply(w, map[string]any{"name": name, "type": "aes256-gcm96", "latest_version": len(versions)})
	case "POST encrypt":
		plain, err := base64.StdEncoding.DecodeString(in.Plaintext)
		if err != nil {
			refuse(w, http.StatusBadRequest, "failed to base64-decode plaintext")
			return
		}
		aead := versions[len(versions)-1]
		nonce := make([]byte, aead.NonceSize())
		_, _ = rand.Read(nonce) // never fails
		text := base64.StdEncoding.EncodeToString(aead.Seal(nonce, nonce, plain, data))
		reply(w, map[string]any{"ciphertext": fmt.Sprintf("vault:v%d:%s", len(versions), text), "key_version": len(versions)})
	case "POST decrypt":
		plain, why := open(versions, in.Ciphertext, data)
		if why != "" {
			refuse(w, http.StatusBadRequest, why)
			return
		}
		reply(w, map[string]any{"plaintext": base64.StdEncoding.EncodeToString(plain)})
	default:
		refuse(w, http.StatusMethodNotAllowed, "unsupported operation")
	}
}

// open decrypts a ciphertext, or returns why it cannot.
func open(versions []cipher.AEAD, text string, data []byte) (plain []byte, why string) {
	fields := strings.SplitN(text, ":", 3)
	if len(fields) != 3 || fields[0] != "vault" {
		return nil, "invalid ciphertext: no prefix"
	}
	n, err := strconv.Atoi(strings.TrimPrefix(fields[1], "v"))
	raw, e := base64.StdEncoding.DecodeString(fields[2])
	if err != nil || e != nil || n < 1 || n > len(versions) || len(raw) < 12 {
		return nil, "invalid ciphertext"
	}
	plain, err = versions[n-1].Open(nil, raw[:12], raw[12:], data)
	if err != nil {
		return nil, "cipher: message authentication failed"
	}
	return plain, ""
}

func reply(w http.ResponseWriter, data map[string]any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data}) // a client that disconnected needs no reply
}

func refuse(w http.ResponseWriter, status int, why ...string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": append([]string{}, why...)}) // as above
}
