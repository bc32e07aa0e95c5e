// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// keyBytes is the number of random bytes in a cluster key.
const keyBytes = 32

// Key is the secret that all members of a cluster share. The text form of a Key, in logs for example, never shows the
// secret. The zero Key is not usable.
type Key struct{ secret [keyBytes]byte }

// String returns a text without the secret.
func (Key) String() string { return "cluster key" }

// GoString returns a text without the secret.
func (Key) GoString() string { return "cluster.Key{}" }

// NewKey makes a random key and returns its text, which ParseKey reads.
func NewKey() string {
	var k [keyBytes]byte
	_, _ = rand.Read(k[:]) // never fails
	return base64.StdEncoding.EncodeToString(k[:])
}

// ParseKey reads the text form of a key: 32 random bytes in base64. The error of ParseKey does not contain the text.
// A shorter secret is refused, because an outsider could guess it from recorded messages.
func ParseKey(text string) (Key, error) {
	var k Key
	b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(text))
	switch {
	case err != nil:
		return Key{}, badKey("the key is not base64")
	case len(b) != keyBytes:
		return Key{}, badKey(fmt.Sprintf("the key has %d bytes; expected %d", len(b), keyBytes))
	}
	copy(k.secret[:], b)
	if k == (Key{}) {
		return Key{}, badKey("all bytes of the key are zero")
	}
	return k, nil
}

func badKey(msg string) error {
	return errs.New(errs.Invalid, "read", "the cluster key", msg).WithFix("make a key with: nebulaio cluster key")
}

// ReadKey reads a key from a file. ReadKey fails with kind Permission if all users of the machine may read the file.
func ReadKey(path string) (Key, error) {
	const op = "read the cluster key"
	f, err := os.Open(path)
	if err != nil {
		return Key{}, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: path, Err: errs.WithoutPath(err),
			Fix: "make a key with: nebulaio cluster key --out " + path}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Key{}, errs.Wrap(op, path, err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return Key{}, errs.New(errs.Permission, op, path,
			fmt.Sprintf("every user of this machine may use the file (mode %04o)",
				info.Mode().Perm())).WithFix("chmod 600 " + path)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return Key{}, errs.Wrap(op, path, errs.WithoutPath(err))
	}
	k, err := ParseKey(string(text))
	if err != nil {
		var e *errs.Error
		if errors.As(err, &e) {
			return Key{}, errs.New(e.Kind, op, path, e.Msg).WithFix(e.Fix)
		}
		return Key{}, err
	}
	return k, nil
}

// WriteKey makes a random key and writes it to a new file with mode 0600. WriteKey fails if the file exists.
func WriteKey(path string) error {
	const op = "write the cluster key"
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		fix := ""
		if errors.Is(err, fs.ErrExist) {
			fix = "use the key that is there, or remove the file first"
		}
		return &errs.Error{Kind: errs.KindOf(err), Op: op, Name: path, Err: errs.WithoutPath(err), Fix: fix}
	}
	_, err = f.WriteString(NewKey() + "\n")
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = os.Remove(path)
		return errs.Wrap(op, path, errs.WithoutPath(err))
	}
	return nil
}

// derive returns a key for one purpose. Knowledge of one derived key tells nothing about the others.
func (k Key) derive(purpose string) [sha256.Size]byte {
	var out [sha256.Size]byte
	b, err := hkdf.Key(sha256.New, k.secret[:], nil, "nebulaio cluster 1: "+purpose, len(out))
	if err != nil {
		panic(err) // cannot be: the length is allowed
	}
	copy(out[:], b)
	return out
}
