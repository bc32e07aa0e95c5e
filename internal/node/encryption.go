// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/keyring"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/sealed"
)

// sealedDisk is the store on disk with encryption.
type sealedDisk struct {
	*sealed.Store
	on onDisk
}

func (s sealedDisk) journal() object.Journal { return s.on.journal() }

func (s sealedDisk) id() string { return s.on.id() }

func (s sealedDisk) reopenable() error { return s.on.reopenable() }

func (s sealedDisk) canDraft(ctx context.Context) error { return s.on.canDraft(ctx) }

func (s sealedDisk) writable(ctx context.Context) error { return s.on.writable(ctx) }

func (s sealedDisk) stats(ctx context.Context) (Stats, error) { return s.on.stats(ctx) }

func (s sealedDisk) scrub(ctx context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error) {
	return s.on.scrub(ctx, rate, progress)
}

func (s sealedDisk) expireUploads(ctx context.Context, before time.Time, told func(disk.Expired)) error {
	return s.on.expireUploads(ctx, before, told)
}

func (s sealedDisk) backup(ctx context.Context, to string, verify bool,
	progress func(BackupReport)) (BackupReport, error) {
	return s.on.backup(ctx, to, verify, progress)
}

// keysOf returns the encryption keys of a store.
func (s sealedDisk) keysOf() *keyring.Ring { return s.Ring() }

// masterOf returns the master key of the configuration, or nil if the configuration has none. It asks no key service.
func masterOf(ctx context.Context, c *config.Config) (keyring.Master, error) {
	e := &c.Encryption
	var inFile keyring.Master
	var err error
	switch {
	case e.KeyFile != "":
		inFile, err = keyring.ReadMaster(e.KeyFile)
	case len(e.KeyCommand) > 0:
		inFile, err = keyring.RunMaster(ctx, e.KeyCommand)
	}
	if err != nil {
		return nil, err
	}
	if e.Vault.Address == "" {
		return inFile, nil
	}
	v, err := keyring.NewTransit(keyring.Transit{Address: e.Vault.Address, Mount: e.Vault.Mount, Key: e.Vault.Key,
		TokenFile: e.Vault.TokenFile, CAFile: e.Vault.CAFile})
	if err != nil || inFile == nil {
		return v, err
	}
	return keyring.Successor(v, inFile), nil
}

// usableMaster returns an error if the master key of the configuration cannot be read.
func usableMaster(ctx context.Context, c *config.Config) error {
	if len(c.Encryption.KeyCommand) > 0 {
		return nil // the command runs once, when the server starts
	}
	_, err := masterOf(ctx, c)
	return err
}

// addEncryption returns the store with the encryption of the configuration. If the master key is another one than the
// store's keys were wrapped with, addEncryption fails: every encrypted object would be unreadable. If a key service
// does not answer, the server starts, and reads of encrypted objects fail until it answers.
func addEncryption(ctx context.Context, c *config.Config, st onDisk, told func(error)) (sealedDisk, error) {
	master, err := masterOf(ctx, c)
	if err != nil {
		return sealedDisk{}, err
	}
	ring, err := keyring.Open(ctx, st, master)
	if err != nil {
		return sealedDisk{}, err
	}
	if err := ring.Check(ctx); err != nil {
		if errs.KindOf(err) != errs.IO && errs.KindOf(err) != errs.Unsupported {
			return sealedDisk{}, err
		}
		told(err)
	}
	return sealedDisk{sealed.New(st, ring), st}, nil
}

// EncryptionKeys administers the encryption keys of a store.
type EncryptionKeys interface {
	// EncryptionKeys lists the keys, without the keys themselves.
	EncryptionKeys(ctx context.Context) ([]keyring.Key, error)
	// CreateEncryptionKey makes a key, which clients can name in requests.
	CreateEncryptionKey(ctx context.Context, name string) error
	// RotateEncryptionKey makes a new generation of a key for new objects.
	RotateEncryptionKey(ctx context.Context, name string) error
	// RewrapEncryptionKeys wraps all keys with the newest master key, and returns how many keys it changed.
	RewrapEncryptionKeys(ctx context.Context) (int, error)
}

// ringOf returns the encryption keys of a store.
func (l *local) ringOf() (*keyring.Ring, error) {
	if k, ok := l.store.(interface{ keysOf() *keyring.Ring }); ok {
		return k.keysOf(), nil
	}
	return nil, errs.New(errs.Unsupported, "administer encryption keys", "", "the store has no encryption")
}

// EncryptionKeys implements EncryptionKeys.
func (l *local) EncryptionKeys(ctx context.Context) ([]keyring.Key, error) {
	r, err := l.ringOf()
	if err != nil {
		return nil, err
	}
	return r.List(ctx)
}

// CreateEncryptionKey implements EncryptionKeys.
func (l *local) CreateEncryptionKey(ctx context.Context, name string) error {
	r, err := l.ringOf()
	if err != nil {
		return err
	}
	return r.Create(ctx, name)
}

// RotateEncryptionKey implements EncryptionKeys.
func (l *local) RotateEncryptionKey(ctx context.Context, name string) error {
	r, err := l.ringOf()
	if err != nil {
		return err
	}
	return r.Rotate(ctx, name)
}

// RewrapEncryptionKeys implements EncryptionKeys.
func (l *local) RewrapEncryptionKeys(ctx context.Context) (int, error) {
	r, err := l.ringOf()
	if err != nil {
		return 0, err
	}
	return r.Rewrap(ctx)
}

// EncryptionKeys implements EncryptionKeys.
func (r *remote) EncryptionKeys(ctx context.Context) ([]keyring.Key, error) {
	var keys []keyring.Key
	return keys, r.call(ctx, http.MethodGet, "/v1/encryption/keys", nil, &keys)
}

// CreateEncryptionKey implements EncryptionKeys.
func (r *remote) CreateEncryptionKey(ctx context.Context, name string) error {
	return r.call(ctx, http.MethodPost, "/v1/encryption/keys", map[string]string{"name": name}, nil)
}

// RotateEncryptionKey implements EncryptionKeys.
func (r *remote) RotateEncryptionKey(ctx context.Context, name string) error {
	return r.call(ctx, http.MethodPost, "/v1/encryption/rotate?name="+url.QueryEscape(name), nil, nil)
}

// rewrapped is the reply of a rotation of the master key.
type rewrapped struct {
	Changed int `json:"changed"`
}

// RewrapEncryptionKeys implements EncryptionKeys.
func (r *remote) RewrapEncryptionKeys(ctx context.Context) (int, error) {
	var out rewrapped
	err := r.call(ctx, http.MethodPost, "/v1/encryption/rewrap", nil, &out)
	return out.Changed, err
}

// addEncryptionKeys adds the requests about encryption keys to the administration socket.
func addEncryptionKeys(mux *http.ServeMux, a EncryptionKeys) {
	mux.HandleFunc("GET /v1/encryption/keys", func(w http.ResponseWriter, r *http.Request) {
		keys, err := a.EncryptionKeys(r.Context())
		answer(w, keys, err)
	})
	mux.HandleFunc("POST /v1/encryption/keys", func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Name string `json:"name"`
		}
		err := decodeBody(w, r, &ask)
		if err == nil {
			err = a.CreateEncryptionKey(r.Context(), ask.Name)
		}
		answer(w, struct{}{}, err)
	})
	mux.HandleFunc("POST /v1/encryption/rotate", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, a.RotateEncryptionKey(r.Context(), r.URL.Query().Get("name")))
	})
	mux.HandleFunc("POST /v1/encryption/rewrap", func(w http.ResponseWriter, r *http.Request) {
		n, err := a.RewrapEncryptionKeys(r.Context())
		answer(w, rewrapped{n}, err)
	})
}
