// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
)

// journalled makes a bucket that asks for entries by the rules.
func journalled(t *testing.T, s *disk.Store, name string, v object.Versioning, rules ...object.JournalRule) {
	t.Helper()
	doc, err := object.EncodeJournalRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	b := object.Bucket{Name: name, Owner: "owner", Versioning: v,
		Settings: map[string][]byte{object.SettingJournal + "test": doc}}
	if object.IsDirectory(name) {
		b.ETag = object.ETagCRC64
	}
	if err := s.CreateBucket(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func journalStore(t *testing.T, o disk.Options) *disk.Store {
	t.Helper()
	if o.FS == nil {
		o.Dir, o.FS = "store", vfs.NewMem()
	}
	o.MemTable = 1 << 20
	s, err := disk.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func putText(ctx context.Context, s *disk.Store, bucket, key, text string) (object.Info, error) {
	return s.Put(ctx, object.Put{Bucket: bucket, Key: key, Size: int64(len(text)), Body: strings.NewReader(text)})
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// linesOf returns the entries of a consumer, one line each.
func linesOf(t *testing.T, s *disk.Store, consumer string) []string {
	t.Helper()
	var out []string
	var last uint64
	for _, e := range must[[]object.JournalEntry](t)(s.ReadJournal(t.Context(), consumer, 0, 1<<20)) {
		if e.Seq <= last {
			t.Fatalf("entry %d after %d", e.Seq, last)
		}
		last = e.Seq
		line := fmt.Sprintf("%s %s/%s %d", e.Kind, e.Bucket, e.Key, e.Size)
		if e.Marker {
			line += " marker"
		}
		if e.By.Principal != "" {
			line += " by " + e.By.Principal
		}
		out = append(out, line)
	}
	return out
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("the journal has\n  %s\nexpected\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestEveryChangeHasItsEntry(t *testing.T) {
	s := journalStore(t, disk.Options{})
	defer s.Close()
	ctx := object.WithRequester(t.Context(), object.Requester{Principal: "ann"})
	journalled(t, s, "b", object.VersioningOff, object.JournalRule{Consumer: "c"})
	info := must[object.Info](t)
	info(putText(ctx, s, "b", "k", "one"))
	info(s.Copy(t.Context(), object.Copy{From: object.Ref{Bucket: "b", Key: "k"}, Bucket: "b", Key: "copy"}))
	info(s.Copy(t.Context(), object.Copy{From: object.Ref{Bucket: "b", Key: "k"}, Bucket: "b", Key: "k",
		Attributes: map[string]string{"a": "1"}}))
	if _, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: "k",
		Condition: object.Condition{IfNoneMatch: "*"}}); err == nil {
		t.Fatal("the condition was ignored")
	}
	id := must[string](t)(s.CreateUpload(t.Context(), "b", "up", nil))
	must[object.PartInfo](t)(s.PutPart(t.Context(), object.PutPart{Bucket: "b", Key: "up", Upload: id, Number: 1, Size: 4,
		Body: strings.NewReader("part")}))
	info(s.CompleteUpload(t.Context(), object.Complete{Bucket: "b", Key: "up", Upload: id,
		Parts: []object.CompletedPart{{Number: 1}}}))
	set := func(a map[string]string) error { a["x"] = "y"; return nil }
	if err := s.SetAttributes(object.WithChangeKind(ctx, object.ChangeTags), object.Ref{Bucket: "b", Key: "k"},
		set); err != nil {
		t.Fatal(err)
	}
	if err := s.SetAttributes(t.Context(), object.Ref{Bucket: "b", Key: "k"}, set); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "missing"}}); err != nil {
		t.Fatal(err)
	}
	if _, fails := s.DeleteMany(ctx, "b", []object.Deletion{{Ref: object.Ref{Bucket: "b", Key: "k"}},
		{Ref: object.Ref{Bucket: "b", Key: "copy"}}, {Ref: object.Ref{Bucket: "b", Key: "missing"}}}); fails[0] != nil {
		t.Fatal(fails)
	}
	wantLines(t, linesOf(t, s, "c"), "put b/k 3 by ann", "copy b/copy 3", "copy b/k 3", "complete b/up 4",
		"tags b/k 3 by ann", "attributes b/k 3", "delete b/k 3 by ann", "delete b/copy 3 by ann")
}

func TestEntriesOfVersionsAndMarkers(t *testing.T) {
	s := journalStore(t, disk.Options{})
	defer s.Close()
	journalled(t, s, "v", object.VersioningEnabled, object.JournalRule{Consumer: "c"})
	one := must[object.Info](t)(putText(t.Context(), s, "v", "k", "one"))
	two := must[object.Info](t)(putText(t.Context(), s, "v", "k", "two!"))
	marker := must[object.Deleted](t)(s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "v", Key: "k"}}))
	for _, v := range []string{one.Version, marker.Version} {
		must[object.Deleted](t)(s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "v", Key: "k", Version: v}}))
	}
	wantLines(t, linesOf(t, s, "c"), "put v/k 3", "put v/k 4", "marker v/k 0 marker", "delete v/k 3",
		"delete v/k 0 marker")
	var versions []string
	for _, e := range must[[]object.JournalEntry](t)(s.ReadJournal(t.Context(), "c", 0, 100)) {
		versions = append(versions, e.Version)
		if !e.Versioned || e.Owner != "owner" {
			t.Errorf("%+v", e)
		}
	}
	if want := []string{one.Version, two.Version, marker.Version, one.Version, marker.Version}; !slices.Equal(versions,
		want) {
		t.Errorf("versions %q, expected %q", versions, want)
	}
}

func TestEntriesOfDirectoryBuckets(t *testing.T) {
	s := journalStore(t, disk.Options{})
	defer s.Close()
	const name = "d--z1--x-s3"
	journalled(t, s, name, object.VersioningOff, object.JournalRule{Consumer: "c"})
	long := strings.Repeat("x", 8<<10)
	add := func(at int64, text string) {
		t.Helper()
		must[object.Info](t)(s.Append(t.Context(), object.Append{Bucket: name, Key: "k", Offset: at, Size: int64(len(text)),
			Body: strings.NewReader(text)}))
	}
	add(0, "ab")
	add(2, long)
	add(2+int64(len(long)), "c")
	if err := s.Rename(t.Context(), object.Rename{Bucket: name, From: "k", To: "n"}); err != nil {
		t.Fatal(err)
	}
	wantLines(t, linesOf(t, s, "c"), "append "+name+"/k 2", "append "+name+"/k 8194", "append "+name+"/k 8195",
		"renamed "+name+"/k 8195", "rename "+name+"/n 8195")
}

func TestRulesChooseTheChanges(t *testing.T) {
	s := journalStore(t, disk.Options{})
	defer s.Close()
	journalled(t, s, "b", object.VersioningOff,
		object.JournalRule{Consumer: "pictures", Prefix: "in/", Suffix: ".png", Kinds: []object.ChangeKind{object.ChangePut}},
		object.JournalRule{Consumer: "old", Lifecycle: true},
		object.JournalRule{Consumer: "rest", NoLifecycle: true, Label: "L"})
	if err := s.CreateBucket(t.Context(), object.Bucket{Name: "quiet"}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"in/a.png", "in/a.jpg", "a.png"} {
		must[object.Info](t)(putText(t.Context(), s, "b", key, "x"))
		must[object.Info](t)(putText(t.Context(), s, "quiet", key, "x"))
	}
	by := object.WithRequester(t.Context(), object.Requester{Principal: object.PrincipalLifecycle})
	must[object.Deleted](t)(s.Delete(by, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "in/a.png"}}))
	wantLines(t, linesOf(t, s, "pictures"), "put b/in/a.png 1")
	wantLines(t, linesOf(t, s, "old"), "delete b/in/a.png 1 by nebulaio:lifecycle")
	wantLines(t, linesOf(t, s, "rest"), "put b/in/a.png 1", "put b/in/a.jpg 1", "put b/a.png 1")
	// Without its setting, the bucket has no more entries; those that wait stay.
	if err := s.UpdateBucket(t.Context(), "b",
		func(b *object.Bucket) error { clear(b.Settings); return nil }); err != nil {
		t.Fatal(err)
	}
	must[object.Info](t)(putText(t.Context(), s, "b", "in/b.png", "x"))
	wantLines(t, linesOf(t, s, "pictures"), "put b/in/a.png 1")
	err := s.UpdateBucket(t.Context(), "b", func(b *object.Bucket) error {
		b.Settings[object.SettingJournal+"test"] = []byte("{")
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), object.SettingJournal+"test") {
		t.Fatalf("a broken list of rules: %v", err)
	}
}

func TestEntriesSurviveARestart(t *testing.T) {
	o := disk.Options{Dir: "store", FS: vfs.NewMem()}
	s := journalStore(t, o)
	journalled(t, s, "b", object.VersioningOff, object.JournalRule{Consumer: "c"}, object.JournalRule{Consumer: "d"})
	for i := range 5 {
		must[object.Info](t)(putText(t.Context(), s, "b", fmt.Sprint(i), "x"))
	}
	all := must[[]object.JournalEntry](t)(s.ReadJournal(t.Context(), "c", 0, 100))
	if err := s.AckJournal(t.Context(), "c", all[1].Seq); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantLines(t, linesOf(t, s, "c"), "put b/2 1", "put b/3 1", "put b/4 1")
		qs := must[[]object.JournalQueue](t)(s.JournalQueues(t.Context()))
		if len(qs) != 2 || qs[0].Waiting != 3 || qs[1].Waiting != 5 || qs[0].Oldest.IsZero() {
			t.Fatalf("queues %+v", qs)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		wantClean(t, o)
		s = journalStore(t, o)
	}
	defer s.Close()
	must[object.Info](t)(putText(t.Context(), s, "b", "new", "x"))
	wantLines(t, linesOf(t, s, "c"), "put b/2 1", "put b/3 1", "put b/4 1", "put b/new 1")
	if err := s.ForgetJournal(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if qs := must[[]object.JournalQueue](t)(s.JournalQueues(t.Context())); len(qs) != 1 || qs[0].Consumer != "d" {
		t.Fatalf("queues %+v", qs)
	}
	wantLines(t, linesOf(t, s, "c"))
}

func TestAFullQueueDropsItsOldestEntries(t *testing.T) {
	dropped := make(chan int64, 100)
	o := disk.Options{Dir: "store", FS: vfs.NewMem(), JournalLimit: 10}
	o.Events.JournalDropped = func(consumer string, n int64) {
		if consumer == "dead" {
			dropped <- n
		}
	}
	o = disk.WithTending(o, time.Millisecond)
	s := journalStore(t, o)
	journalled(t, s, "b", object.VersioningOff, object.JournalRule{Consumer: "dead"})
	for i := range 50 {
		must[object.Info](t)(putText(t.Context(), s, "b", fmt.Sprint(i), "x"))
	}
	var sum int64
	for sum < 40 {
		sum += <-dropped
	}
	for range 2 {
		if lines := linesOf(t, s, "dead"); len(lines) != 10 || lines[0] != "put b/40 1" {
			t.Fatalf("%d entries: %q", len(lines), lines)
		}
		qs := must[[]object.JournalQueue](t)(s.JournalQueues(t.Context()))
		if len(qs) != 1 || qs[0].Lost != 40 || qs[0].Waiting != 10 || qs[0].LastLost.IsZero() {
			t.Fatalf("queues %+v", qs)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = journalStore(t, o)
	}
	_ = s.Close()
}

// TestAReaderMissesNothing writes from many goroutines while a consumer reads, and acknowledges what it has read.
func TestAReaderMissesNothing(t *testing.T) {
	const writers, each = 16, 40
	s := journalStore(t, disk.Options{})
	defer s.Close()
	journalled(t, s, "b", object.VersioningEnabled, object.JournalRule{Consumer: "c"})
	var wrote sync.Map // version by "key number"
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				info, err := putText(t.Context(), s, "b", fmt.Sprint(w%4), fmt.Sprint(w, i))
				if err != nil {
					t.Error(err)
					return
				}
				wrote.Store(info.Version, true)
			}
		})
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	seen := map[string]int{}
	order := map[string][]string{}
	var last uint64
	for n := 0; n < writers*each; {
		if err := s.WaitJournal(ctx, "c", last); err != nil {
			t.Fatalf("after %d of %d entries: %v", n, writers*each, err)
		}
		some, err := s.ReadJournal(ctx, "c", last, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range some {
			if e.Seq <= last {
				t.Fatalf("entry %d after %d", e.Seq, last)
			}
			last = e.Seq
			seen[e.Version]++
			order[e.Key] = append(order[e.Key], e.Version)
			n++
		}
		if err := s.AckJournal(ctx, "c", last); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	wrote.Range(func(v, _ any) bool {
		if seen[v.(string)] != 1 {
			t.Errorf("version %v was read %d times", v, seen[v.(string)])
		}
		return true
	})
	for key, versions := range order {
		page, err := s.List(t.Context(), object.List{Bucket: "b", Prefix: key, Versions: true})
		if err != nil {
			t.Fatal(err)
		}
		var listed []string
		for _, o := range page.Objects {
			listed = append(listed, o.Version)
		}
		slices.Reverse(listed) // a listing begins with the newest version
		if !slices.Equal(versions, listed) {
			t.Errorf("key %s: the journal has another order than the listing", key)
		}
	}
	if qs := must[[]object.JournalQueue](t)(s.JournalQueues(t.Context())); len(qs) != 1 || qs[0].Waiting != 0 {
		t.Errorf("queues %+v", qs)
	}
}
