// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/keyring"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/seal"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/sealed"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/test/effort"
)

const masterText = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// encryptedOn returns a store on disk that encrypts with a fixed master key.
func encryptedOn(t testing.TB, o disk.Options) *sealed.Store {
	t.Helper()
	d, err := disk.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	master, err := keyring.ParseMaster([]byte(masterText), "test")
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keyring.Open(context.Background(), d, master)
	if err != nil {
		t.Fatal(err)
	}
	return sealed.New(d, ring)
}

// always is a store whose new buckets encrypt by default.
type always struct{ *sealed.Store }

// CreateBucket implements object.Buckets.
func (a always) CreateBucket(ctx context.Context, b object.Bucket) error {
	if !object.IsDirectory(b.Name) {
		b = b.Clone()
		b.Settings[object.SettingEncryption] = []byte(`{"kind":"AES256"}`)
	}
	return a.Store.CreateBucket(ctx, b)
}

// TestConformanceOfEncryptedBuckets makes the calls of the conformance suite on buckets that encrypt every object, and
// checks the store without a key before each reopening.
func TestConformanceOfEncryptedBuckets(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	var dirs sync.Map // disk.Options of each object.Store: tests run side by side
	open := func(t *testing.T, o disk.Options) object.Store {
		s := always{encryptedOn(t, o)}
		dirs.Store(s, o)
		return s
	}
	storetest.RunSequential(t, storetest.Target{
		Sizes: []int{disk.DefaultInline - seal.Tag, seal.Block},
		Open: func(t *testing.T) object.Store {
			return open(t, disk.Options{Dir: storetest.Dir(t), MemTable: 1 << 20, Reserve: -1})
		},
		Reopen: func(t *testing.T, s object.Store) object.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			o, _ := dirs.Load(s)
			r, err := disk.Check(context.Background(), o.(disk.Options), check.Options{Content: true})
			if err != nil || r.Found > 0 {
				t.Fatalf("check: %v, %d problems: %+v", err, r.Found, r.Problems)
			}
			return open(t, o.(disk.Options))
		},
		Skip: func(name string) string {
			return encryptedDiffers[name]
		},
	})
}

// encryptedDiffers are the tests of the suite that cannot hold for encrypted objects: they count or compare all
// attributes of an object, and an encrypted object has one more.
var encryptedDiffers = map[string]string{
	"objects/attributes":                  oneMore,
	"objects/attributes have bounds":      oneMore,
	"bodies/Finish sees what was written": oneMore,
	"versions/attributes of one version":  oneMore,
	"copies/of every size":                oneMore,
	"copies/with other attributes":        oneMore,
	"copies/onto itself":                  oneMore,
	"uploads/begun, described, ended":     oneMore,
	"completions/Finish and attributes":   oneMore,
}

const oneMore = "an encrypted object has the attribute sealed"

func encryptedBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*31 + i>>9)
	}
	return b
}

// mustPut writes an object with an encryption.
func mustPut(t *testing.T, s *sealed.Store, e object.Encryption, key string, b []byte) object.Info {
	t.Helper()
	i, err := s.Put(object.WithEncryption(t.Context(), e), object.Put{Bucket: "b", Key: key, Size: int64(len(b)),
		Body: bytes.NewReader(b), Attributes: map[string]string{}})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// readSealed reads a whole object.
func readSealed(ctx context.Context, s *sealed.Store, key string) ([]byte, error) {
	c, err := s.Open(ctx, object.Ref{Bucket: "b", Key: key})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	body, err := c.Section(object.Range{N: c.Info().Size})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// largest returns the path and the bytes of the largest data file of a store.
func largest(t *testing.T, dir string) (path string, b []byte) {
	t.Helper()
	var most int64
	err := filepath.WalkDir(filepath.Join(dir, "data"), func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if i, err := d.Info(); err == nil && i.Size() > most {
			path, most = p, i.Size()
		}
		return nil
	})
	if err == nil && path != "" {
		b, err = os.ReadFile(path)
	}
	if err != nil || path == "" {
		t.Fatalf("no data file in %s: %v", dir, err)
	}
	return path, b
}

// TestChangedFilesOfEncryptedObjectsAreRefused changes the file of an object in every way that an attacker with the
// disk has, with a store that never compares its own checksums. Only the encryption can notice.
func TestChangedFilesOfEncryptedObjectsAreRefused(t *testing.T) {
	const size = 5*seal.Block + 1000
	const step = seal.Block + seal.Tag
	customer := bytes.Repeat([]byte{7}, object.CustomerKey)
	for name, e := range map[string]object.Encryption{
		"SSE-S3": {Kind: object.EncryptedS3}, "SSE-C": {Kind: object.EncryptedCustomer, Customer: customer}} {
		for _, policy := range []string{"never", "first"} {
			t.Run(name+" "+policy, func(t *testing.T) {
				dir := storetest.Dir(t)
				o := disk.Options{Dir: dir, Verify: datafile.Policy(policy), Reserve: -1}
				s := encryptedOn(t, o)
				if err := s.CreateBucket(t.Context(), object.Bucket{Name: "b", ETag: object.ETagMD5}); err != nil {
					t.Fatal(err)
				}
				content := encryptedBytes(size)
				info := mustPut(t, s, e, "k", content)
				if info.Size != size || info.Stored != seal.Size(size) {
					t.Fatalf("%d bytes in %d", info.Size, info.Stored)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				path, right := largest(t, dir)
				if bytes.Contains(right, content[1000:1100]) {
					t.Fatal("the file holds the content in the clear")
				}
				ctx := t.Context()
				if e.Customer != nil {
					ctx = object.WithCustomerKey(ctx, customer)
				}
				swapped := bytes.Clone(right)
				copy(swapped, right[step:2*step])
				copy(swapped[step:], right[:step])
				flipped := bytes.Clone(right)
				flipped[4*step+9] ^= 1
				repeated := bytes.Clone(right)
				copy(repeated[3*step:], right[2*step:3*step])
				for what, b := range map[string][]byte{"a flipped bit": flipped, "swapped blocks": swapped,
					"a repeated block": repeated, "a cut tail": right[:len(right)-1000-seal.Tag], "right bytes": right} {
					if err := os.WriteFile(path, b, 0o600); err != nil {
						t.Fatal(err)
					}
					s := encryptedOn(t, o)
					got, err := readSealed(ctx, s, "k")
					if what == "right bytes" {
						if err != nil || !bytes.Equal(got, content) {
							t.Errorf("%s: %v", what, err)
						}
					} else if !errors.Is(err, object.ErrDamaged) {
						t.Errorf("%s: %d bytes, %v", what, len(got), err)
					}
					if err == nil && !bytes.Equal(got, content) {
						t.Errorf("%s: wrong bytes were returned", what)
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// TestKeysOfEncryptedObjects reads with wrong, missing and needless keys of customers, and with another master key.
func TestKeysOfEncryptedObjects(t *testing.T) {
	dir := storetest.Dir(t)
	o := disk.Options{Dir: dir, Reserve: -1}
	s := encryptedOn(t, o)
	if err := s.CreateBucket(t.Context(), object.Bucket{Name: "b", ETag: object.ETagMD5}); err != nil {
		t.Fatal(err)
	}
	customer := bytes.Repeat([]byte{7}, object.CustomerKey)
	other := bytes.Repeat([]byte{8}, object.CustomerKey)
	content := encryptedBytes(100_000)
	mustPut(t, s, object.Encryption{Kind: object.EncryptedCustomer, Customer: customer}, "c", content)
	mustPut(t, s, object.Encryption{Kind: object.EncryptedS3}, "s", content)
	mustPut(t, s, object.Encryption{Kind: object.EncryptedNot}, "p", content)
	for _, c := range []struct {
		key      string
		customer []byte
		want     error
	}{
		{"c", customer, nil}, {"c", other, object.ErrWrongKey}, {"c", nil, object.ErrNeedsKey}, {"s", nil, nil},
		{"s", customer, object.ErrUnneededKey}, {"p", nil, nil}, {"p", customer, object.ErrUnneededKey},
	} {
		ctx := t.Context()
		if c.customer != nil {
			ctx = object.WithCustomerKey(ctx, c.customer)
		}
		got, err := readSealed(ctx, s, c.key)
		if !errors.Is(err, c.want) || err == nil && !bytes.Equal(got, content) {
			t.Errorf("%s with a key of %d bytes: %v, expected %v", c.key, len(c.customer), err, c.want)
		}
		info, err := s.Stat(t.Context(), object.Ref{Bucket: "b", Key: c.key})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Unlock(ctx, &info); !errors.Is(err, c.want) {
			t.Errorf("unlock %s: %v, expected %v", c.key, err, c.want)
		}
	}
	if _, err := s.Handle(t.Context(), object.Ref{Bucket: "b", Key: "s"}); err == nil ||
		!strings.Contains(err.Error(), "encrypted") {
		t.Errorf("the door got an encrypted file: %v", err)
	}
	if err := s.CheckEncryption(t.Context(), "b",
		object.Encryption{Kind: object.EncryptedKMS, KeyID: "none"}); !errors.Is(err,
		object.ErrNoSuchEncryptionKey) {
		t.Errorf("an unknown key: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := disk.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	master, err := keyring.ParseMaster([]byte(strings.ReplaceAll(masterText, "0", "1")), "test")
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keyring.Open(t.Context(), d, master)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Check(t.Context()); err == nil {
		t.Error("another master key unwraps the keys of the store")
	}
	wrong := sealed.New(d, ring)
	if _, err := readSealed(t.Context(), wrong, "s"); err == nil {
		t.Error("an object was read with another master key")
	}
	if got, err := readSealed(t.Context(), wrong, "p"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("an object without encryption: %v", err)
	}
	if none, err := keyring.Open(t.Context(), d, nil); err != nil || !errors.Is(none.Usable(), object.ErrNoEncryption) {
		t.Errorf("without a master key: %v", err)
	}
}

// TestRangesAndPartsOfEncryptedObjects reads ranges of a multipart object, whose parts have odd sizes and are sent
// twice.
func TestRangesAndPartsOfEncryptedObjects(t *testing.T) {
	s := encryptedOn(t, disk.Options{Dir: storetest.Dir(t), Reserve: -1})
	defer s.Close()
	if err := s.CreateBucket(t.Context(), object.Bucket{Name: "b", ETag: object.ETagMD5}); err != nil {
		t.Fatal(err)
	}
	customer := bytes.Repeat([]byte{7}, object.CustomerKey)
	for name, e := range map[string]object.Encryption{"s3": {Kind: object.EncryptedS3}, "kms": {Kind: object.EncryptedKMS},
		"customer": {Kind: object.EncryptedCustomer, Customer: customer}} {
		for _, withKey := range []bool{true, false} {
			ctx := object.WithEncryption(t.Context(), e)
			id, err := s.CreateUpload(ctx, "b", name, map[string]string{})
			if err != nil {
				t.Fatal(err)
			}
			var content []byte
			var parts []object.CompletedPart
			for i, n := range []int{3*seal.Block + 5, 3*seal.Block + 5, seal.Block, 17} {
				b := encryptedBytes(n + i)[i:]
				var p object.PartInfo
				for range 2 { // a part that is sent again replaces the first
					if p, err = s.PutPart(ctx, object.PutPart{Bucket: "b", Key: name, Upload: id, Number: 2*i + 1, Size: int64(n),
						Body: bytes.NewReader(b)}); err != nil || p.Size != int64(n) {
						t.Fatalf("%+v %v", p, err)
					}
				}
				content = append(content, b...)
				parts = append(parts, object.CompletedPart{Number: 2*i + 1, ETag: p.ETag})
			}
			done := ctx
			if !withKey {
				done = t.Context()
			}
			info, err := s.CompleteUpload(done, object.Complete{Bucket: "b", Key: name, Upload: id, Parts: parts})
			if err != nil || info.Size != int64(len(content)) || len(info.Parts) != 4 || !strings.HasSuffix(info.ETag, "-4") {
				t.Fatalf("%s: %+v %v", name, info, err)
			}
			read := t.Context()
			if e.Customer != nil {
				read = object.WithCustomerKey(read, customer)
			}
			c, err := s.Open(read, object.Ref{Bucket: "b", Key: name})
			if err != nil {
				t.Fatal(err)
			}
			size := int64(len(content))
			for _, off := range []int64{0, 1, seal.Block, 3*seal.Block + 4, 3*seal.Block + 5, 6 * seal.Block, size - 18,
				size - 1, size} {
				for _, n := range []int64{0, 1, 17, seal.Block + 1, 4 * seal.Block, size} {
					n = min(n, size-off)
					body, err := c.Section(object.Range{Off: off, N: n})
					if err != nil {
						t.Fatal(err)
					}
					var got bytes.Buffer
					if _, err := body.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), content[off:off+n]) {
						t.Errorf("%s: %d bytes at %d: %d, %v", name, n, off, got.Len(), err)
					}
					_ = body.Close()
				}
			}
			if _, err := c.Section(object.Range{Off: size, N: 1}); !errors.Is(err, object.ErrInvalidRange) {
				t.Errorf("a range behind the end: %v", err)
			}
			_ = c.Close()
		}
	}
}

// TestCopiesBetweenKindsOfEncryption copies between all kinds, whole and as parts.
func TestCopiesBetweenKindsOfEncryption(t *testing.T) {
	s := encryptedOn(t, disk.Options{Dir: storetest.Dir(t), Reserve: -1})
	defer s.Close()
	if err := s.CreateBucket(t.Context(), object.Bucket{Name: "b", ETag: object.ETagMD5}); err != nil {
		t.Fatal(err)
	}
	from, to := bytes.Repeat([]byte{7}, object.CustomerKey), bytes.Repeat([]byte{9}, object.CustomerKey)
	kinds := []object.EncryptionKind{object.EncryptedNot, object.EncryptedS3, object.EncryptedKMS,
		object.EncryptedCustomer}
	content := encryptedBytes(200_000)
	for _, a := range kinds {
		src := object.Encryption{Kind: a}
		ctx := t.Context()
		if a == object.EncryptedCustomer {
			src.Customer = from
			ctx = object.WithCustomerKey(ctx, from)
		}
		mustPut(t, s, src, "from", content)
		for _, z := range kinds {
			dst := object.Encryption{Kind: z}
			read := t.Context()
			if z == object.EncryptedCustomer {
				dst.Customer = to
				read = object.WithCustomerKey(read, to)
			}
			name := fmt.Sprintf("%s to %s", a, z)
			info, err := s.Copy(object.WithEncryption(ctx, dst),
				object.Copy{From: object.Ref{Bucket: "b", Key: "from"}, Bucket: "b", Key: "to"})
			if err != nil || info.Size != int64(len(content)) || (info.Stored > 0) != (z != object.EncryptedNot) {
				t.Fatalf("%s: %+v %v", name, info, err)
			}
			if got, err := readSealed(read, s, "to"); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: %v", name, err)
			}
			up := object.WithEncryption(ctx, dst)
			id, err := s.CreateUpload(up, "b", "part", nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.CopyPart(up, object.CopyPart{From: object.Ref{Bucket: "b", Key: "from"}, Off: 1000, N: 70_000,
				Bucket: "b", Key: "part", Upload: id, Number: 1})
			if err != nil || p.Size != 70_000 {
				t.Fatalf("%s, as a part: %+v %v", name, p, err)
			}
			if _, err := s.CompleteUpload(up, object.Complete{Bucket: "b", Key: "part", Upload: id,
				Parts: []object.CompletedPart{{Number: 1}}}); err != nil {
				t.Fatal(err)
			}
			if got, err := readSealed(read, s, "part"); err != nil || !bytes.Equal(got, content[1000:71_000]) {
				t.Errorf("%s, as a part: %v", name, err)
			}
		}
	}
}
