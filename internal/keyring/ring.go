// SPDX-License-Identifier: Apache-2.0

// Package keyring keeps the keys that wrap the data keys of encrypted objects.
//
// A data key encrypts one object. A key of the ring wraps many data keys. A master key wraps the keys of the ring, so
// that the store's records hold no key in the clear. The master key is in a file, comes from a command, or stays in a
// key service and never leaves it. A rotation of the master key wraps the few keys of the ring anew and touches no
// object. A rotation of a key of the ring makes a new generation of the key; older generations still unwrap.
package keyring

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/seal"
)

// recordKind is the kind of the store's records that hold keys.
const recordKind = "encryption-key"

const (
	// S3 is the name of the key that SSE-S3 uses.
	S3 = "nebulaio/s3"
	// Default is the name of the key that SSE-KMS uses if a client names none, as in AWS.
	Default = "aws/s3"
)

// Key describes a key of the ring, without the key itself.
type Key struct {
	Name        string    `json:"name"`
	Created     time.Time `json:"created"`
	Generations int       `json:"generations"` // number of generations; new objects use the last
	// Current reports whether the newest version of the master key has wrapped all generations.
	Current bool `json:"current"`
}

// stored is the record of a key.
type stored struct {
	Name        string       `json:"name"`
	Created     time.Time    `json:"created"`
	Generations []generation `json:"generations"` // generation number n is the n-th, from 1
}

type generation struct {
	Created time.Time `json:"created"`
	Wrapped string    `json:"wrapped"`
}

// Ring holds the keys of one store. All methods of Ring are safe for concurrent use.
type Ring struct {
	records object.Records
	master  Master

	write sync.Mutex // one change at a time
	mu    sync.RWMutex
	keys  map[string]*stored
	open  map[slot]*seal.Wrapper // keys in the clear
}

// slot names one generation of a key.
type slot struct {
	name       string
	generation int
}

// Open reads the keys of a store. If master is nil, the ring can neither wrap nor unwrap, and only lists its keys. Open
// does not ask the master key.
func Open(ctx context.Context, records object.Records, master Master) (*Ring, error) {
	names, err := records.RecordNames(ctx, recordKind)
	if err != nil {
		return nil, err
	}
	r := &Ring{records: records, master: master, keys: map[string]*stored{}, open: map[slot]*seal.Wrapper{}}
	for _, name := range names {
		raw, err := records.Record(ctx, recordKind, name)
		if err != nil {
			return nil, err
		}
		var k stored
		if err := json.Unmarshal(raw, &k); err != nil || k.Name != name || len(k.Generations) == 0 {
			return nil, errs.New(errs.Corrupt, "read encryption key", name, "the record cannot be read").
				WithFix("restore the store from a backup")
		}
		r.keys[name] = &k
	}
	return r, nil
}

// Usable returns nil if the ring has a master key, and otherwise an error that says how to get one.
func (r *Ring) Usable() error {
	if r.master != nil {
		return nil
	}
	return &errs.Error{Kind: errs.Unsupported, Op: "encrypt", Err: object.ErrNoEncryption,
		Fix: "make a key with nebulaio encryption new-key FILE, and set encryption.key_file"}
}

// CheckName returns an error if name cannot be the name of a key: 1 to 128 letters, digits and -_./ are allowed.
func CheckName(name string) error {
	ok := len(name) >= 1 && len(name) <= 128
	for i := range len(name) {
		c := name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			slices.Contains([]byte("-_./"), c))
	}
	if !ok {
		return errs.New(errs.Invalid, "create encryption key", "",
			fmt.Sprintf("name %.140q, expected 1 to 128 letters, digits "+"and -_./", name))
	}
	return nil
}

// List returns all keys, ordered by name.
func (r *Ring) List(ctx context.Context) ([]Key, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := []Key{}
	for _, k := range r.keys {
		out := Key{Name: k.Name, Created: k.Created, Generations: len(k.Generations), Current: r.master != nil}
		for _, g := range k.Generations {
			if r.master == nil {
				break
			}
			current, err := r.master.Current(ctx, g.Wrapped)
			if err != nil {
				return nil, err
			}
			out.Current = out.Current && current
		}
		all = append(all, out)
	}
	slices.SortFunc(all, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Has reports whether the ring has a key. The keys S3 and Default always exist, because the ring makes them when they
// are used first.
func (r *Ring) Has(name string) bool {
	if name == S3 || name == Default {
		return true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, ok := r.keys[name]
	return ok
}

// Create makes a key. Create fails with kind Invalid if the ring has a key with that name.
func (r *Ring) Create(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	r.write.Lock()
	defer r.write.Unlock()
	if r.stored(name) != nil {
		return errs.New(errs.Invalid, "create encryption key", name, "a key with this name exists already").
			WithFix("choose another name, or rotate the key: nebulaio encryption rotate " + name)
	}
	return r.grow(ctx, &stored{Name: name, Created: time.Now().UTC().Truncate(time.Second)})
}

// Rotate adds a generation to a key. New objects use the new generation, and older objects stay readable. Rotate fails
// with object.ErrNoSuchEncryptionKey if there is no such key.
func (r *Ring) Rotate(ctx context.Context, name string) error {
	r.write.Lock()
	defer r.write.Unlock()
	old := r.stored(name)
	if old == nil {
		return noKey("rotate encryption key", name)
	}
	return r.grow(ctx, old.clone())
}

// Rewrap wraps every key with the newest version of the master key, and returns how many keys were changed. Afterwards
// older versions of the master key are not needed any more.
func (r *Ring) Rewrap(ctx context.Context) (int, error) {
	r.write.Lock()
	defer r.write.Unlock()
	if err := r.Usable(); err != nil {
		return 0, err
	}
	r.mu.RLock()
	var names []string
	for name := range r.keys {
		names = append(names, name)
	}
	r.mu.RUnlock()
	slices.Sort(names)
	changed := 0
	for _, name := range names {
		k := r.stored(name).clone()
		touched := false
		for i := range k.Generations {
			g := &k.Generations[i]
			current, err := r.master.Current(ctx, g.Wrapped)
			if err != nil {
				return changed, err
			}
			if current {
				continue
			}
			key, err := r.master.Unwrap(ctx, g.Wrapped, bindingOf(name, i+1))
			if err == nil {
				g.Wrapped, err = r.master.Wrap(ctx, key, bindingOf(name, i+1))
			}
			if err != nil {
				return changed, err
			}
			touched = true
		}
		if !touched {
			continue
		}
		if err := r.put(ctx, k); err != nil {
			return changed, err
		}
		changed++
	}
	return changed, nil
}

// Newest returns the number of the newest generation of a key, and the Wrapper of that generation. Newest makes the
// keys S3 and Default if they do not exist. Newest fails with object.ErrNoSuchEncryptionKey if there is no such key.
func (r *Ring) Newest(ctx context.Context, name string) (*seal.Wrapper, int, error) {
	if err := r.Usable(); err != nil {
		return nil, 0, err
	}
	k := r.stored(name)
	if k == nil && (name == S3 || name == Default) {
		if err := r.Create(ctx, name); err != nil && r.stored(name) == nil {
			return nil, 0, err
		}
		k = r.stored(name)
	}
	if k == nil {
		return nil, 0, noKey("encrypt", name)
	}
	n := len(k.Generations)
	w, err := r.Generation(ctx, name, n)
	return w, n, err
}

// Generation returns the Wrapper of one generation of a key. The ring asks the master key only the first time.
func (r *Ring) Generation(ctx context.Context, name string, n int) (*seal.Wrapper, error) {
	at := slot{name, n}
	r.mu.RLock()
	w, k := r.open[at], r.keys[name]
	r.mu.RUnlock()
	switch {
	case w != nil:
		return w, nil
	case k == nil || n < 1 || n > len(k.Generations):
		return nil, noKey("decrypt", fmt.Sprintf("%s, generation %d", name, n))
	}
	if err := r.Usable(); err != nil {
		return nil, err
	}
	key, err := r.master.Unwrap(ctx, k.Generations[n-1].Wrapped, bindingOf(name, n))
	if err != nil {
		return nil, err
	}
	if w, err = seal.NewWrapper(key); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.open[at] = w
	r.mu.Unlock()
	return w, nil
}

// Check returns nil if the ring can unwrap its keys now.
func (r *Ring) Check(ctx context.Context) error {
	r.mu.RLock()
	var all []slot
	for name, k := range r.keys {
		all = append(all, slot{name, len(k.Generations)})
	}
	r.mu.RUnlock()
	for _, at := range all {
		if _, err := r.Generation(ctx, at.name, at.generation); err != nil {
			return err
		}
	}
	return nil
}

func (r *Ring) stored(name string) *stored {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.keys[name]
}

// grow adds a generation to a key and stores the key. The caller holds the lock of changes.
func (r *Ring) grow(ctx context.Context, k *stored) error {
	if err := r.Usable(); err != nil {
		return err
	}
	key := seal.NewKey()
	wrapped, err := r.master.Wrap(ctx, key, bindingOf(k.Name, len(k.Generations)+1))
	if err != nil {
		return err
	}
	k.Generations = append(k.Generations, generation{Created: time.Now().UTC().Truncate(time.Second), Wrapped: wrapped})
	return r.put(ctx, k)
}

// put makes a key durable, and then visible.
func (r *Ring) put(ctx context.Context, k *stored) error {
	raw, err := json.Marshal(k)
	if err != nil {
		return errs.Wrap("store encryption key", k.Name, err)
	}
	if err := r.records.PutRecord(ctx, recordKind, k.Name, raw); err != nil {
		return err
	}
	r.mu.Lock()
	r.keys[k.Name] = k
	r.mu.Unlock()
	return nil
}

func (k *stored) clone() *stored {
	c := *k
	c.Generations = slices.Clone(k.Generations)
	return &c
}

// bindingOf returns the text that binds a wrapped key to its place.
func bindingOf(name string, generation int) string { return fmt.Sprintf("%s %d", name, generation) }

func noKey(op, name string) error {
	return &errs.Error{Kind: errs.NotFound, Op: op, Name: name, Err: object.ErrNoSuchEncryptionKey,
		Fix: "list the keys: nebulaio encryption keys"}
}
