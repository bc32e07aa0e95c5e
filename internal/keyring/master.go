// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/seal"
)

// Master holds a master key, which wraps the keys of a Ring. All methods of Master are safe for concurrent use.
type Master interface {
	// Wrap encrypts a key. Unwrap returns the key only for the same name.
	Wrap(ctx context.Context, key []byte, name string) (wrapped string, err error)
	// Unwrap decrypts a key that Wrap encrypted, also with an older version of the master key. Unwrap fails with
	// object.ErrKeyService if a key service does not answer, and with kind Permission if the master key is another one.
	Unwrap(ctx context.Context, wrapped, name string) ([]byte, error)
	// Current reports whether the newest version of the master key has wrapped the key.
	Current(ctx context.Context, wrapped string) (bool, error)
	// String describes where the master key is, for messages.
	String() string
}

// Successor returns a Master that wraps with the master key next, and unwraps with next or with the master key old. A
// store moves from one kind of master key to the other with it.
func Successor(next, old Master) Master { return succession{next, old} }

type succession struct {
	Master
	old Master
}

// Unwrap implements Master.
func (s succession) Unwrap(ctx context.Context, wrapped, name string) ([]byte, error) {
	if strings.HasPrefix(wrapped, localPrefix) {
		return s.old.Unwrap(ctx, wrapped, name)
	}
	return s.Master.Unwrap(ctx, wrapped, name)
}

// localPrefix begins a key that a master key of this process has wrapped. The identifier of the master key follows.
const localPrefix = "local:"

// localMaster holds master keys in memory. The first key wraps, and all keys unwrap.
type localMaster struct {
	from  string
	first string // identifier of the first key
	keys  map[string]*seal.Wrapper
}

// ParseMaster reads master keys from the text of a key file. Each line holds one key: 64 hexadecimal digits, or 32
// bytes in base64. Empty lines and lines that begin with # are ignored. The first key wraps new keys; the others are
// older keys, which only unwrap. The parameter from names the source of the text in messages. An error never contains
// the text.
func ParseMaster(text []byte, from string) (Master, error) {
	const op = "read master key"
	m := &localMaster{from: from, keys: map[string]*seal.Wrapper{}}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 4<<10)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, ok := decodeKey(line)
		if !ok {
			return nil, errs.New(errs.Invalid, op, from, fmt.Sprintf("line %d has %d characters, expected a key of %d "+
				"hexadecimal digits, or of %d bytes in base64", n, len(line), 2*seal.KeySize, seal.KeySize)).
				WithFix("make a key: nebulaio encryption new-key FILE")
		}
		sum := sha256.Sum256(append([]byte("nebulaio master "), key...))
		id := hex.EncodeToString(sum[:8])
		if _, twice := m.keys[id]; twice {
			return nil, errs.New(errs.Invalid, op, from, fmt.Sprintf("line %d repeats an earlier key", n)).
				WithFix("remove the line")
		}
		w, err := seal.NewWrapper(key)
		if err != nil {
			return nil, err
		}
		if m.first == "" {
			m.first = id
		}
		m.keys[id] = w
	}
	if err := lines.Err(); err != nil {
		return nil, errs.Wrap(op, from, err)
	}
	if m.first == "" {
		return nil, errs.New(errs.Invalid, op, from, "has no key").WithFix("make a key: nebulaio encryption new-key FILE")
	}
	return m, nil
}

// decodeKey decodes a key of one line.
func decodeKey(line string) ([]byte, bool) {
	if b, err := hex.DecodeString(line); err == nil && len(b) == seal.KeySize {
		return b, true
	}
	b, err := base64.StdEncoding.DecodeString(line)
	return b, err == nil && len(b) == seal.KeySize
}

// maxKeyFile is the largest size of a key file in bytes.
const maxKeyFile = 64 << 10

// ReadMaster reads master keys from a file. ReadMaster refuses a file that other users can read.
func ReadMaster(path string) (Master, error) {
	const op = "read master key"
	info, err := os.Stat(path)
	if err != nil {
		return nil, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: path, Err: errs.WithoutPath(err),
			Fix: "make a key: nebulaio encryption new-key " + path}
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, errs.New(errs.Invalid, op, path, "is no file").WithFix("name a file with a key")
	case info.Mode().Perm()&0o077 != 0:
		return nil, errs.New(errs.Permission, op, path, fmt.Sprintf("has mode %04o, expected that only its owner can read it",
			info.Mode().Perm())).WithFix("chmod 600 " + path)
	case info.Size() > maxKeyFile:
		return nil, errs.New(errs.Invalid, op, path,
			fmt.Sprintf("has %d bytes, expected at most %d", info.Size(), maxKeyFile))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: path, Err: errs.WithoutPath(err)}
	}
	return ParseMaster(text, path)
}

// commandTime is the longest time that a command for the master key may take.
const commandTime = 30 * time.Second

// RunMaster reads master keys from the output of a command. The first argument is the path of the program; no shell
// interprets the arguments.
func RunMaster(ctx context.Context, args []string) (Master, error) {
	const op = "run the command for the master key"
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	var out bytes.Buffer
	c.Stdout = &limited{&out, maxKeyFile}
	var complaint bytes.Buffer
	c.Stderr = &limited{&complaint, 4 << 10}
	if err := c.Run(); err != nil {
		text := err.Error()
		if s := strings.TrimSpace(complaint.String()); s != "" {
			text += ": " + s
		}
		return nil, errs.New(errs.IO, op, args[0], text).WithFix("run the command by hand, and see why it fails")
	}
	return ParseMaster(out.Bytes(), args[0])
}

// limited keeps the first bytes that are written to it, and refuses more.
type limited struct {
	to   *bytes.Buffer
	left int
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errs.New(errs.Invalid, "read the output", "", fmt.Sprintf("is longer than %d bytes", l.to.Len()+l.left))
	}
	l.left -= len(p)
	return l.to.Write(p)
}

// Wrap implements Master.
func (m *localMaster) Wrap(_ context.Context, key []byte, name string) (string, error) {
	w := m.keys[m.first].Wrap(key, "key", name)
	return localPrefix + m.first + ":" + base64.StdEncoding.EncodeToString(w), nil
}

// Unwrap implements Master.
func (m *localMaster) Unwrap(_ context.Context, wrapped, name string) ([]byte, error) {
	const op = "unwrap encryption key"
	id, text, ok := strings.Cut(strings.TrimPrefix(wrapped, localPrefix), ":")
	if !ok || !strings.HasPrefix(wrapped, localPrefix) {
		return nil, errs.New(errs.Permission, op, name, "another kind of master key has wrapped it").
			WithFix("configure the key service that the store was used with")
	}
	w, known := m.keys[id]
	if !known {
		return nil, errs.New(errs.Permission, op, name, fmt.Sprintf("the master key %s has wrapped it, and %s has other keys",
			id, m.from)).WithFix("add the old master key as a further line")
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errs.New(errs.Corrupt, op, name, err.Error())
	}
	key, err := w.Unwrap(raw, "key", name)
	if err != nil {
		return nil, errs.Wrap(op, name, err)
	}
	return key, nil
}

// Current implements Master.
func (m *localMaster) Current(_ context.Context, wrapped string) (bool, error) {
	return strings.HasPrefix(wrapped, localPrefix+m.first+":"), nil
}

// String implements Master.
func (m *localMaster) String() string { return m.from }
