// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/quarantine"
	"github.com/nebulaio/nebulaio/internal/store/record"
	"github.com/nebulaio/nebulaio/test/effort"
)

// kept is one acknowledged version, and everything in the store that it needs.
type kept struct {
	name    string // bucket/key
	key     []byte // of its record
	seq     uint64
	file    uint64
	content []byte
	needs   map[string]string // keys and values
}

// dump is all records of a stopped store.
func dump(t *testing.T, fs vfs.FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	withMeta(t, fs, func(db *pebble.DB) {
		it, err := db.NewIter(nil)
		must(t, err)
		for ok := it.First(); ok; ok = it.Next() {
			all[string(it.Key())] = string(it.Value())
		}
		must(t, it.Close())
	})
	return all
}

// withMeta opens the metadata of a stopped store directly.
func withMeta(t *testing.T, fs vfs.FS, f func(*pebble.DB)) {
	t.Helper()
	db, err := pebble.Open("store/meta", metadb.ToolOptions(fs, 1<<20, false))
	must(t, err)
	f(db)
	must(t, db.Close())
}

// files is the content of all files of a store but those of Pebble and the notes in its root, by path.
func files(t *testing.T, fs vfs.FS) map[string]string {
	t.Helper()
	all := tree(t, fs, "store")
	maps.DeleteFunc(all, func(p, _ string) bool {
		return strings.HasPrefix(p, "store/meta/") || p == "store/EPOCH" || strings.HasPrefix(p, "store/REACH.")
	})
	return all
}

// keep lists the acknowledged versions of a stopped store.
func keep(t *testing.T, fs vfs.FS) []kept {
	t.Helper()
	records, on := dump(t, fs), files(t, fs)
	names := map[uint64]string{}
	for k, v := range records {
		if k[0] == record.KindBucket {
			id, _, err := record.DecodeBucket(k[1:], []byte(v))
			must(t, err)
			names[id] = k[1:]
		}
	}
	var all []kept
	for k, v := range records {
		if k[0] != record.KindObject && k[0] != record.KindVersion {
			continue
		}
		x, err := record.DecodeVersion([]byte(v), false)
		must(t, err)
		if x.Marker() || x.Size == 0 {
			continue
		}
		bucket, _ := record.NumberOf([]byte(k))
		name := k[9:]
		if k[0] == record.KindVersion {
			name, _, _ = record.SplitVersionKey([]byte(k))
		}
		e := kept{name: names[bucket] + "/" + strconv.Quote(name), key: []byte(k), seq: x.Seq, file: x.File,
			needs: map[string]string{k: v}}
		need := func(key []byte) {
			if v, ok := records[string(key)]; ok {
				e.needs[string(key)] = v
			}
		}
		need(record.PartsKey(x.Seq))
		need(record.DataKey(x.Seq))
		if x.File != 0 {
			need(record.FileKey(x.File))
			need(record.SumsKey(x.File, 0))
		}
		e.content = []byte(records[string(record.DataKey(x.Seq))])
		if x.File != 0 {
			e.content = []byte(on[placeOf(on, x.File)])
		}
		if int64(len(e.content)) != x.Size {
			t.Fatalf("%s has %d bytes, its content %d", e.name, x.Size, len(e.content))
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b kept) int { return bytes.Compare(a.key, b.key) })
	return all
}

// placeOf is where a data file is.
func placeOf(on map[string]string, id uint64) string {
	home := fmt.Sprintf("store/data/%02x/%02x/%016x", id>>20, id>>12&0xff, id)
	if _, ok := on[home]; ok {
		return home
	}
	return fmt.Sprintf("store/tmp/%016x", id)
}

// intact says whether a version can still be read as it was written.
func (e *kept) intact(records, on map[string]string) bool {
	b, ok := records[string(e.key)]
	if !ok {
		return false
	}
	v, err := record.DecodeVersion([]byte(b), false)
	if err != nil || v.Size != int64(len(e.content)) || v.CRC != checksum.Of(e.content) {
		return false
	}
	if v.File == 0 {
		return records[string(record.DataKey(v.Seq))] == string(e.content)
	}
	sums := v.Sums
	if record.ChunksOf(v.Size) > 0 {
		c := []byte(records[string(record.SumsKey(v.File, 0))])
		t := codec.Decoder{Rest: c}
		if t.Byte() != record.Format || len(t.Rest)%8 != 0 {
			return false
		}
		for sums = nil; len(t.Rest) > 0; {
			sums = append(sums, t.Word())
		}
	}
	if int64(len(sums)) != record.BlocksOf(v.Size) || on[placeOf(on, v.File)] != string(e.content) {
		return false
	}
	for i, sum := range sums {
		if checksum.Of(e.content[i*record.BlockSize:min((i+1)*record.BlockSize, len(e.content))]) != sum {
			return false
		}
	}
	return true
}

// namedIn says whether a report speaks of a version.
func (e *kept) namedIn(r check.Report) bool {
	return slices.ContainsFunc(r.Problems, func(p check.Problem) bool {
		text := p.What + " " + p.Msg
		// Where its bucket cannot be read, or is another one now, the bucket has a number and no name.
		_, key, _ := strings.Cut(e.name, "/")
		return strings.Contains(text, "/"+key) || strings.Contains(text, fmt.Sprintf("content %d", e.seq)) ||
			e.file != 0 && strings.Contains(text, datafile.ID(e.file).String())
	})
}

// writeDurably replaces a file, so that it survives a power cut.
func writeDurably(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	must(t, fs.MkdirAll(path.Dir(name), 0o700))
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(b)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		must(t, layout.SyncDir(fs, d))
	}
}

// harm damages a stopped store once, and says how.
func harm(t *testing.T, fs vfs.FS, r *rand.Rand) string {
	t.Helper()
	on := files(t, fs)
	var data []string
	for _, p := range slices.Sorted(maps.Keys(on)) {
		if strings.HasPrefix(p, "store/data/") && len(on[p]) > 0 {
			data = append(data, p)
		}
	}
	if r.IntN(5) == 0 {
		return harmForeign(t, fs, r)
	}
	if r.IntN(3) == 0 && len(data) > 0 {
		return harmFile(t, fs, r, data, on)
	}
	return harmRecord(t, fs, r)
}

func harmForeign(t *testing.T, fs vfs.FS, r *rand.Rand) string {
	name := []string{"data/README", "data/ab", "data/00/ff", "data/00/x", "data/00/00/foo", "data/zz/deep/file",
		"tmp/notes", "mine.txt",
		"tmp/00000000000000f0", "data/00/00/00000000000000f1", "data/00/01/00000000000000f2", "data/00/00/00000000000000F3",
		"quarantine/note"}[r.IntN(13)]
	writeDurably(t, fs, "store/"+name, fmt.Appendf(nil, "precious %d", r.Uint64()))
	return "foreign file " + name
}

func harmFile(t *testing.T, fs vfs.FS, r *rand.Rand, data []string, on map[string]string) string {
	p := data[r.IntN(len(data))]
	b := []byte(on[p])
	how := r.IntN(7)
	switch how {
	case 0:
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	case 1:
		clear(b[r.IntN(len(b)):])
	case 2:
		b = b[:r.IntN(len(b))]
	case 3:
		b = append(b, make([]byte, 1+r.IntN(5000))...)
	case 4:
		must(t, fs.Remove(p))
		must(t, layout.SyncDir(fs, path.Dir(p)))
		return "deleted " + p
	case 5:
		q := data[r.IntN(len(data))]
		writeDurably(t, fs, q, b)
		b = []byte(on[q])
	case 6: // as an unfinished settling leaves it, or a copy of a store without hard links
		writeDurably(t, fs, "store/tmp/"+path.Base(p), b)
		if r.IntN(2) == 0 {
			must(t, fs.Remove(p))
			must(t, layout.SyncDir(fs, path.Dir(p)))
		}
		return "moved to tmp/ " + p
	}
	writeDurably(t, fs, p, b)
	return fmt.Sprintf("file %s, way %d", p, how)
}

func harmRecord(t *testing.T, fs vfs.FS, r *rand.Rand) (said string) {
	all := dump(t, fs)
	byKind := map[byte][]string{}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		byKind[k[0]] = append(byKind[k[0]], k)
	}
	kinds := slices.Sorted(maps.Keys(byKind))
	of := byKind[kinds[r.IntN(len(kinds))]] // every kind is as likely as any other
	k := of[r.IntN(len(of))]
	v := []byte(all[k])
	other := of[r.IntN(len(of))]
	key := []byte(k)
	spoilt := bytes.Clone(key)
	spoilt[1+r.IntN(len(spoilt)-1)] ^= 1 << r.IntN(8)
	withMeta(t, fs, func(db *pebble.DB) {
		set := func(k, v []byte) { must(t, db.Set(k, v, pebble.Sync)) }
		how := r.IntN(11)
		said = fmt.Sprintf("record %q, way %d", k, how)
		switch how {
		case 0:
			must(t, db.Delete(key, pebble.Sync))
		case 1:
			if len(v) > 0 {
				v[r.IntN(len(v))] ^= 1 << r.IntN(8)
			}
			set(key, v)
		case 2:
			set(key, v[:r.IntN(len(v)+1)])
		case 3:
			if len(v) > 0 {
				v[0] = byte(2 + r.IntN(250))
			}
			set(key, v)
		case 4:
			set(spoilt, v)
		case 5:
			must(t, db.Delete(key, pebble.Sync))
			set(spoilt, v)
		case 6:
			set(key, []byte(all[other]))
			set([]byte(other), v)
		case 7:
			set(key, append(v, byte(r.IntN(256))))
		case 8:
			set([]byte{byte('A' + r.IntN(26)), 'x'}, v)
		case 9:
			of := byKind[record.KindFile]
			f := of[r.IntN(len(of))]
			set(append([]byte{record.KindGone}, f[1:]...), []byte{1})
			said = fmt.Sprintf("file %x is to be removed", f[1:])
		case 10:
			set([]byte(other), v)
		}
	})
	return said
}

// damagedStores is how many stores each test of repairs damages at random.
var damagedStores = effort.Rounds{Test: 4, CI: 10, Long: 200}

// TestRepairOfDamagedStores damages stores at random, in records, files and sums. After a repair, everything that was
// acknowledged and not damaged is there, nothing is deleted, every damaged object is named, and what repair did can be
// undone.
func TestRepairOfDamagedStores(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	clean, newer := 0, 0
	for seed := range damagedStores.Of(t) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 13))
			fs := vfs.NewCrashableMem()
			s := richIn(t, fs)
			must(t, s.files.Flush())
			s.remover.wait()
			closed(t, s)
			all := keep(t, fs)
			var said []string
			for range 1 + r.IntN(4) {
				said = append(said, harm(t, fs, r))
			}
			t.Log(strings.Join(said, "; "))
			records, on := dump(t, fs), files(t, fs)
			o := Options{Dir: "store", FS: fs, MemTable: 1 << 20}
			report, err := Check(t.Context(), o, check.Options{Repair: true, Content: true})
			if err != nil {
				t.Fatal("refused: ", err)
			}
			wantAllThere(t, fs, records, on)
			after, now := dump(t, fs), files(t, fs)
			whole := 0
			for i := range all {
				e := &all[i]
				if e.intact(records, on) {
					whole++
					if !e.intact(after, now) {
						t.Errorf("%s was whole before the repair", e.name)
					}
				} else if !e.namedIn(report) {
					t.Errorf("%s is damaged and not named", e.name)
				}
			}
			if report.Found == 0 {
				clean++
			}
			again, err := Check(t.Context(), o, check.Options{Repair: true})
			must(t, err)
			if again.Repaired != 0 || !maps.Equal(after, dump(t, fs)) || !maps.Equal(now, files(t, fs)) {
				t.Errorf("the second repair changed something: %+v", again.Problems)
			}
			if !wantReadable(t, fs, all, after, now) {
				newer++
			}
			if t.Failed() {
				for _, p := range report.Problems {
					t.Logf("%+v", p)
				}
			}
		})
	}
	t.Logf("in %d stores the damage left no trace, %d stay closed until a newer version opens them", clean, newer)
}

// wantAllThere wants every byte of every file and every record to be in the store or in quarantine.
func wantAllThere(t *testing.T, fs vfs.FS, records, on map[string]string) {
	t.Helper()
	after, now := dump(t, fs), files(t, fs)
	count := func(m map[string]string) map[string]int {
		n := map[string]int{}
		for _, v := range m {
			n[v]++
		}
		return n
	}
	have := count(now)
	for v, n := range count(on) {
		if have[v] < n {
			t.Errorf("a file of %d bytes is gone", len(v))
		}
	}
	saved := map[string]bool{}
	for name, text := range now {
		if !strings.HasPrefix(name, "store/quarantine/records-") || !strings.HasSuffix(name, ".jsonl") {
			continue
		}
		for line := range strings.Lines(text) {
			var e struct{ Key, Value []byte }
			must(t, json.Unmarshal([]byte(line), &e))
			saved[string(e.Key)+"\x00=\x00"+string(e.Value)] = true
		}
	}
	for k, v := range records {
		if now, ok := after[k]; (!ok || now != v) && !saved[k+"\x00=\x00"+v] {
			t.Errorf("the record %q is gone", k)
		}
	}
}

// wantReadable opens the store and reads what is whole. It returns false where a record of a newer version forbids
// that.
func wantReadable(t *testing.T, fs vfs.FS, all []kept, records, on map[string]string) bool {
	t.Helper()
	s, err := Open(context.Background(), Options{Dir: "store", FS: fs, MemTable: 1 << 20})
	if errs.Is(err, errs.Unsupported) {
		t.Log("does not open: ", err)
		return false
	}
	if err != nil {
		t.Error("does not open: ", err)
		return true
	}
	defer closed(t, s)
	for i := range all {
		e := &all[i]
		bucket, _ := record.NumberOf(e.key)
		if !e.intact(records, on) || strings.HasPrefix(s.bucketName(bucket), "#") {
			continue
		}
		v, err := record.DecodeVersion([]byte(records[string(e.key)]), false)
		must(t, err)
		key := string(e.key[9:])
		if e.key[0] == record.KindVersion {
			key, _, _ = record.SplitVersionKey(e.key)
		}
		c, err := s.openVersion("open", s.buckets[s.bucketName(bucket)], key, v, false, true)
		if err != nil {
			if v.Flags&record.FlagParts != 0 {
				continue // the list of its parts may be what is damaged
			}
			t.Errorf("%s: %v", e.name, err)
			continue
		}
		body, err := c.Section(object.Range{N: v.Size})
		must(t, err)
		got, err := io.ReadAll(body)
		if err != nil || !bytes.Equal(got, e.content) {
			t.Errorf("%s: %d bytes, %v", e.name, len(got), err)
		}
		_, _ = body.Close(), c.Close()
	}
	return true
}

// TestRepairCanBeUndone: what repair moved aside can be put back, to the last byte.
func TestRepairCanBeUndone(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	for seed := range damagedStores.Of(t) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 14))
			fs := vfs.NewCrashableMem()
			s := richIn(t, fs)
			must(t, s.files.Flush())
			closed(t, s)
			for range 1 + r.IntN(3) {
				harm(t, fs, r)
			}
			records, on := dump(t, fs), files(t, fs)
			o := Options{Dir: "store", FS: fs, MemTable: 1 << 20}
			if _, err := Check(t.Context(), o, check.Options{Repair: true, Unreadable: true}); err != nil {
				return
			}
			wantAllThere(t, fs, records, on)
			list, err := Quarantine(t.Context(), o)
			must(t, err)
			left := 0
			// records before files
			slices.SortFunc(list, func(a, b quarantine.Entry) int { return strings.Compare(b.Kind, a.Kind) })
			for _, q := range list {
				if q.Kind == "unknown" {
					continue
				}
				got, err := RestoreQuarantined(t.Context(), o, q.Name)
				if err != nil && strings.HasPrefix(q.Path, "tmp/") {
					left++
					continue
				}
				must(t, err)
				if len(got.Kept) != 0 {
					t.Errorf("%s: %v were not put back", q.Name, got.Kept)
				}
			}
			if !maps.Equal(records, dump(t, fs)) {
				t.Error("the records are not what they were")
			}
			now := files(t, fs)
			for p, b := range on {
				if now[p] != b {
					left--
				}
			}
			if left != 0 {
				t.Errorf("%d files are not where they were", -left)
			}
		})
	}
}

// cutFS takes a picture of what a power cut would leave, before one of the steps that change names.
type cutFS struct {
	vfs.FS
	at   int
	take func()
}

func (c *cutFS) step() {
	if c.at--; c.at == 0 {
		c.take()
	}
}

func (c *cutFS) Create(name string, w vfs.DiskWriteCategory) (vfs.File, error) {
	c.step()
	return c.FS.Create(name, w)
}

func (c *cutFS) Rename(old, name string) error {
	c.step()
	return c.FS.Rename(old, name)
}

// TestRepairAfterRepairWasKilled: a repair that was cut off by a loss of power is begun again, and nothing is lost.
func TestRepairAfterRepairWasKilled(t *testing.T) {
	effort.SingleThreaded(t)
	cuts := 0
	for seed := range damagedStores.Of(t) {
		r := rand.New(rand.NewPCG(uint64(seed), 15))
		fs := vfs.NewCrashableMem()
		s := richIn(t, fs)
		must(t, s.files.Flush())
		s.remover.wait()
		closed(t, s)
		writeDurably(t, fs, "store/data/README", []byte("precious"))
		writeDurably(t, fs, "store/data/00/00/0000000000000f00", []byte("nobody's"))
		writeDurably(t, fs, "store/tmp/notes", []byte("precious too"))
		withMeta(t, fs, func(db *pebble.DB) {
			must(t, db.Set(record.DataKey(4711), []byte("content of nobody"), pebble.Sync))
			must(t, db.Set(record.GoneKey(2), []byte{1}, pebble.Sync))
			must(t, db.Delete(record.FileKey(2), pebble.Sync))
		})
		records, on := dump(t, fs), files(t, fs)
		var left *vfs.MemFS
		cut := &cutFS{FS: fs, at: 1 + r.IntN(40), take: func() {
			left = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(101), RNG: r})
		}}
		o := Options{Dir: "store", FS: cut, MemTable: 1 << 20}
		report, err := Check(t.Context(), o, check.Options{Repair: true})
		must(t, err)
		if report.Repaired != report.Found {
			t.Fatalf("%+v", report.Problems)
		}
		if left == nil {
			continue
		}
		cuts++
		o.FS = left
		report, err = Check(t.Context(), o, check.Options{Repair: true})
		if err != nil || report.Repaired != report.Found {
			t.Fatalf("seed %d: %v, %+v", seed, err, report.Problems)
		}
		wantAllThere(t, left, records, on)
		if report, err = Check(t.Context(), o, check.Options{}); err != nil || report.Found != 0 {
			t.Fatalf("seed %d: %v, %+v", seed, err, report.Problems)
		}
	}
	if cuts == 0 {
		t.Error("no repair was cut off")
	}
}

// TestNothingIsMovedAsideAfterARecordThatCannotBeRead: what seems to belong to nobody may belong to that record.
func TestNothingIsMovedAsideAfterARecordThatCannotBeRead(t *testing.T) {
	effort.SingleThreaded(t)
	for name, spoil := range map[string]func(v []byte) []byte{
		"newer":   func(v []byte) []byte { v[0] = 2; return v },
		"cut":     func(v []byte) []byte { return v[:3] },
		"flipped": func(v []byte) []byte { v[1] |= 0x80; return v },
	} {
		for _, victim := range []string{"inline", "file", "many sums", "completed", "bucket"} {
			if victim == "bucket" && name != "newer" {
				continue // it is rebuilt
			}
			t.Run(name+" "+victim, func(t *testing.T) {
				fs, s := rich(t)
				must(t, s.files.Flush())
				s.remover.wait()
				key := record.ObjectKey(s.buckets["b"].id, victim)
				if victim == "bucket" {
					key = record.BucketKey("b")
				}
				old, err := metadb.Get(s.db, key)
				must(t, err)
				closed(t, s)
				withMeta(t, fs, func(db *pebble.DB) { must(t, db.Set(key, spoil(bytes.Clone(old)), pebble.Sync)) })
				records, on := dump(t, fs), files(t, fs)
				o := Options{Dir: "store", FS: fs}
				report, err := Check(t.Context(), o, check.Options{Repair: true})
				must(t, err)
				if !maps.Equal(records, dump(t, fs)) || !maps.Equal(on, files(t, fs)) {
					t.Errorf("repair changed something: %+v", report.Problems)
				}
				if !slices.ContainsFunc(report.Problems, func(p check.Problem) bool {
					return p.Invariant == "record" && !p.Repaired &&
						(strings.Contains(p.What, victim) || victim == "bucket" && p.What == `bucket "b"`)
				}) {
					t.Errorf("the record is not named: %+v", report.Problems)
				}
				// With the record put back, all is whole.
				withMeta(t, fs, func(db *pebble.DB) { must(t, db.Set(key, old, pebble.Sync)) })
				if report, err = Check(t.Context(), o, check.Options{Content: true}); err != nil || report.Found != 0 {
					t.Errorf("%+v, %v", report.Problems, err)
				}
			})
		}
	}
}

// TestUnreadableRecordsCanBeMovedAside: when their owner says so, and never where they are of a newer version.
func TestUnreadableRecordsCanBeMovedAside(t *testing.T) {
	fs, s := rich(t)
	must(t, s.files.Flush())
	s.remover.wait()
	cut, newer := record.ObjectKey(s.buckets["b"].id, "file"), record.ObjectKey(s.buckets["b"].id, "inline")
	v, err := metadb.Get(s.db, newer)
	must(t, err)
	v[0] = 9
	setKey(t, s, cut, []byte{1, 2})
	closed(t, s)
	records, on := dump(t, fs), files(t, fs)
	o := Options{Dir: "store", FS: fs}
	report, err := Check(t.Context(), o, check.Options{Repair: true, Unreadable: true})
	must(t, err)
	if report.Repaired != report.Found || report.Found < 3 {
		t.Errorf("%+v", report.Problems)
	}
	wantAllThere(t, fs, records, on)
	if report, err = Check(t.Context(), o, check.Options{}); err != nil || report.Found != 0 {
		t.Errorf("%+v, %v", report.Problems, err)
	}
	withMeta(t, fs, func(db *pebble.DB) { must(t, db.Set(newer, v, pebble.Sync)) })
	if report, err = Check(t.Context(), o, check.Options{Repair: true, Unreadable: true}); err != nil ||
		report.Repaired != 0 {
		t.Errorf("%+v, %v", report.Problems, err)
	}
}

// TestAFileWithAnOwnerIsNotRemoved: a removal list that names it is damaged.
func TestAFileWithAnOwnerIsNotRemoved(t *testing.T) {
	fs, s := rich(t)
	must(t, s.files.Flush())
	id := current(t, s, "b", "file").File
	setKey(t, s, record.GoneKey(id), []byte{1})
	setKey(t, s, []byte{record.KindGone, 7}, []byte{1})
	closed(t, s)
	var told []error
	s = openMem(t, fs, func(o *Options) { o.Events.Background = func(err error) { told = append(told, err) } })
	s.remover.wait()
	if got := readAll(t, s, object.Ref{Bucket: "b", Key: "file"}); !bytes.Equal(got, content1(100<<10, 2)) {
		t.Error("the object has changed")
	}
	if len(told) != 2 || !strings.Contains(errors.Join(told...).Error(), "removal list") {
		t.Errorf("told %v", told)
	}
	closed(t, s)
}

// TestDeletingOneOfTwoOwnersKeepsTheFile: two records name a file, of which one is damaged; the file stays with the
// other.
func TestDeletingOneOfTwoOwnersKeepsTheFile(t *testing.T) {
	for _, victim := range []string{"file", "many sums"} {
		fs, s := rich(t)
		must(t, s.files.Flush())
		v := *current(t, s, "b", victim)
		v.Seq += 1000
		setKey(t, s, record.ObjectKey(s.buckets["b"].id, "twin"), v.Encode())
		want := readAll(t, s, object.Ref{Bucket: "b", Key: victim})
		_, err := s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "b", Key: "twin"}})
		must(t, err)
		closed(t, s)
		s = openMem(t, fs)
		s.remover.wait()
		if got := readAll(t, s, object.Ref{Bucket: "b", Key: victim}); !bytes.Equal(got, want) {
			t.Errorf("%s has changed", victim)
		}
		closed(t, s)
	}
}

// TestAMarkThatIsTooLowOverwritesNothing: numbers in use are not given out again, also where nobody has run a check.
func TestAMarkThatIsTooLowOverwritesNothing(t *testing.T) {
	for _, name := range []string{"sequences", "buckets"} {
		fs, s := rich(t)
		must(t, s.files.Flush())
		makeBucket(t, s, object.Bucket{Name: "empty"})
		closed(t, s)
		withMeta(t, fs, func(db *pebble.DB) {
			must(t, db.Set(record.MetaKey(name), binary.BigEndian.AppendUint64(nil, 1), pebble.Sync))
		})
		told := 0
		s = openMem(t, fs, func(o *Options) { o.Events.Background = func(error) { told++ } })
		makeBucket(t, s, object.Bucket{Name: "new"})
		for i := range 20 {
			putBytes(t, s, "new", fmt.Sprint("k", i), content1(100, 100+i))
		}
		if got := readAll(t, s, object.Ref{Bucket: "b", Key: "inline"}); !bytes.Equal(got, content1(100, 1)) || told == 0 {
			t.Errorf("%s: %d bytes, told %d times", name, len(got), told)
		}
		if _, err := s.Stat(t.Context(), object.Ref{Bucket: "new", Key: "file"}); !errors.Is(err, object.ErrNoSuchKey) {
			t.Errorf("%s: a new bucket has the objects of another one: %v", name, err)
		}
		closed(t, s)
		if r, err := Check(t.Context(), Options{Dir: "store", FS: fs}, check.Options{}); err != nil || r.Found != 0 {
			t.Errorf("%s: %+v, %v", name, r.Problems, err)
		}
	}
}
