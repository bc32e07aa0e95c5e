// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/lifecycle"

	"github.com/nebulaio/nebulaio/test/effort"
)

// family is a group of keys that meet the same fate. Each key of a family has the same number of versions.
type family struct {
	bucket, prefix string
	versions       int
	marked         bool // a delete marker follows the versions
	size           int
	tags           map[string]string
	locked         func(version int) bool
	// survives reports whether a version is there in the end; version 0 is the oldest one.
	survives func(version int) bool
	covered  bool   // a rule adds a delete marker
	counts   string // the number of the report that counts each removed version
}

const openBucket, manyBucket, lockBucket = "lifecycle-open", "lifecycle-many", "lifecycle-lock"

func never(int) bool  { return false }
func always(int) bool { return true }

// families returns the groups of keys, and the rules of each bucket. The clock of the rules is 20 days ahead.
func families() ([]family, map[string]*lifecycle.Configuration) {
	days := func(n int) lifecycle.Expiration { return lifecycle.Expiration{Days: lifecycle.ExpirationDays(n)} }
	rule := func(id, prefix string) lifecycle.Rule {
		return lifecycle.Rule{ID: id, Status: "Enabled", RuleFilter: lifecycle.Filter{Prefix: prefix}}
	}
	due, late, tagged, big := rule("due", "due/"), rule("late", "late/"), rule("tagged", ""), rule("big", "")
	due.Expiration, late.Expiration, tagged.Expiration, big.Expiration = days(5), days(30), days(1), days(1)
	tagged.RuleFilter = lifecycle.Filter{And: lifecycle.And{Prefix: "tag/", Tags: []lifecycle.Tag{{Key: "k", Value: "v"}}}}
	big.RuleFilter = lifecycle.Filter{And: lifecycle.And{Prefix: "size/", ObjectSizeGreaterThan: 10}}
	uploads := rule("uploads", "up/")
	uploads.AbortIncompleteMultipartUpload = lifecycle.AbortIncompleteMultipartUpload{DaysAfterInitiation: 2}
	newer, cover, mark := rule("newer", "newer/"), rule("cover", "cover/"), rule("mark", "mark/")
	newer.NoncurrentVersionExpiration = lifecycle.NoncurrentVersionExpiration{NoncurrentDays: 3,
		NewerNoncurrentVersions: 2}
	cover.Expiration = days(5)
	mark.Expiration = lifecycle.Expiration{DeleteMarker: true}
	old := rule("old", "")
	old.NoncurrentVersionExpiration = lifecycle.NoncurrentVersionExpiration{NoncurrentDays: 1}
	return []family{
			{bucket: openBucket, prefix: "due/", versions: 1, survives: never, counts: "expired"},
			{bucket: openBucket, prefix: "late/", versions: 1, survives: always},
			{bucket: openBucket, prefix: "tag/yes", versions: 1, tags: map[string]string{"k": "v"}, survives: never,
				counts: "expired"},
			{bucket: openBucket, prefix: "tag/no", versions: 1, tags: map[string]string{"k": "w"}, survives: always},
			{bucket: openBucket, prefix: "size/big", versions: 1, size: 11, survives: never, counts: "expired"},
			{bucket: openBucket, prefix: "size/small", versions: 1, size: 10, survives: always},
			{bucket: manyBucket, prefix: "newer/", versions: 8, survives: func(v int) bool { return v >= 5 },
				counts: "noncurrent"},
			{bucket: manyBucket, prefix: "cover/", versions: 2, survives: always, covered: true, counts: "expired"},
			{bucket: manyBucket, prefix: "mark/alone", marked: true, survives: always, counts: "markers"},
			{bucket: manyBucket, prefix: "mark/above", versions: 1, marked: true, survives: always},
			{bucket: manyBucket, prefix: "free/", versions: 3, survives: always},
			{bucket: lockBucket, prefix: "lock/", versions: 4, locked: func(v int) bool { return v == 1 },
				survives: func(v int) bool { return v == 1 || v == 3 }, counts: "noncurrent"},
		}, map[string]*lifecycle.Configuration{openBucket: {Rules: []lifecycle.Rule{due, late, tagged, big, uploads}},
			manyBucket: {Rules: []lifecycle.Rule{newer, cover, mark}}, lockBucket: {Rules: []lifecycle.Rule{old}}}
}

// expected is what must be there and in the reports when all rules were applied.
type expected struct {
	mu       sync.Mutex
	versions map[string]bool // bucket/key/version of versions that stay
	markers  map[string]int  // bucket/key: number of delete markers
	counts   map[string]int64
	written  int
}

// TestKilledLifecycle kills the server again and again while it applies lifecycle rules. In the end exactly the due
// versions are gone, and the reports count each of them once.
func TestKilledLifecycle(t *testing.T) {
	total := effort.Rounds{Test: 400, CI: 1500, Long: 100_000}.Of(t) // versions
	kills := effort.Rounds{Test: 2, CI: 5, Long: 50}.Of(t)
	data := t.TempDir()
	s := start(t, data)
	want := writeFamilies(t, s, total)
	s.stop(t)

	t.Setenv("NEBULAIO_TEST_CLOCK_AHEAD", "480h")
	rnd := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	done := int64(0)
	for range kills {
		rate := max(1, total/kills) * (1 + rnd.IntN(4))
		s := start(t, data, "--lifecycle-rate", strconv.Itoa(rate))
		goal := done + int64(1+rnd.IntN(max(1, total/kills)))
		for removed(t, s) < goal-done && !complete(t, data) {
		}
		s.kill()
		done = removedInAll(t, data)
	}
	out, code := run(t, "lifecycle", "run", "--data", data, "--json")
	if code != 0 {
		t.Fatalf("lifecycle run: %d\n%s", code, out)
	}
	if out, code := run(t, "store", "check", "--data", data); code != 0 {
		t.Fatalf("store check: %d\n%s", code, out)
	}
	counts := map[string]int64{}
	for _, r := range reports(t, data) {
		counts["expired"] += r.Total.Expired
		counts["noncurrent"] += r.Total.Noncurrent
		counts["markers"] += r.Total.Markers
		counts["uploads"] += r.Total.Uploads
		if r.Total.Failed != 0 || r.Pass == nil || r.Pass.Ended == nil {
			t.Errorf("the report of %s: %+v", r.Bucket, r)
		}
	}
	if !maps.Equal(counts, want.counts) {
		t.Errorf("the reports count %v, expected %v", counts, want.counts)
	}
	s = start(t, data, "--lifecycle-enabled=false")
	compare(t, s, want)
	t.Logf("%d versions, %d kills, removed %v, the last kill after %d removals", want.written, kills, counts, done)
	s.stop(t)
}

// writeFamilies writes about total versions in the buckets of the test, and returns what has to stay.
func writeFamilies(t *testing.T, s *server, total int) *expected {
	t.Helper()
	c := s.client(t)
	all, rules := families()
	for _, b := range []string{openBucket, manyBucket, lockBucket} {
		if err := c.MakeBucket(t.Context(), b, minio.MakeBucketOptions{ObjectLocking: b == lockBucket}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.EnableVersioning(t.Context(), manyBucket); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, f := range all {
		sum += f.versions
		if f.marked {
			sum++
		}
	}
	keys := max(1, total/sum)
	want := &expected{versions: map[string]bool{}, markers: map[string]int{}, counts: map[string]int64{"uploads": 3,
		"expired": 0, "noncurrent": 0, "markers": 0}}
	jobs := make(chan func() error)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for job := range jobs {
				if err := job(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for k := range keys {
		for i := range all {
			f := &all[i]
			jobs <- func() error { return f.write(t, c, want, fmt.Sprintf("%s%06d", f.prefix, k)) }
		}
	}
	close(jobs)
	wg.Wait()
	for i := range 3 {
		if _, err := c.NewMultipartUpload(t.Context(), openBucket, fmt.Sprint("up/", i),
			minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.NewMultipartUpload(t.Context(), openBucket, "other", minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	for b, conf := range rules {
		if err := c.SetBucketLifecycle(t.Context(), b, conf); err != nil {
			t.Fatal(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return want
}

// write writes all versions of one key.
func (f *family) write(t *testing.T, c *minio.Core, want *expected, key string) error {
	var ids []string
	for v := range f.versions {
		o := minio.PutObjectOptions{UserTags: f.tags}
		if f.locked != nil && f.locked(v) {
			o.Mode, o.RetainUntilDate = minio.Governance, time.Now().AddDate(1, 0, 0)
			o.SendContentMd5 = true
		}
		info, err := c.Client.PutObject(t.Context(), f.bucket, key, bytes.NewReader(make([]byte, f.size)), int64(f.size), o)
		if err != nil {
			return err
		}
		ids = append(ids, info.VersionID)
	}
	if f.marked {
		if err := c.Client.RemoveObject(t.Context(), f.bucket, key, minio.RemoveObjectOptions{}); err != nil {
			return err
		}
	}
	want.mu.Lock()
	defer want.mu.Unlock()
	want.written += len(ids)
	for v, id := range ids {
		if f.survives(v) {
			want.versions[f.bucket+"/"+key+"/"+id] = true
		} else {
			want.counts[f.counts]++
		}
	}
	switch {
	case f.counts == "markers":
		want.counts["markers"]++
		want.written++
	case f.covered:
		want.counts["expired"]++
		want.markers[f.bucket+"/"+key] = 1
	case f.marked:
		want.markers[f.bucket+"/"+key] = 1
		want.written++
	}
	return nil
}

// compare compares all versions and uploads of the server with what is expected.
func compare(t *testing.T, s *server, want *expected) {
	t.Helper()
	c := s.client(t)
	got, markers := map[string]bool{}, map[string]int{}
	for _, b := range []string{openBucket, manyBucket, lockBucket} {
		for o := range c.Client.ListObjects(t.Context(), b, minio.ListObjectsOptions{WithVersions: true, Recursive: true}) {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if o.IsDeleteMarker {
				markers[b+"/"+o.Key]++
				continue
			}
			id := o.VersionID
			if b == openBucket {
				id = ""
			}
			got[b+"/"+o.Key+"/"+id] = true
		}
	}
	if !maps.Equal(got, want.versions) {
		lost, extra := difference(want.versions, got), difference(got, want.versions)
		t.Errorf("%d versions are missing, such as %q; %d are there too many, such as %q", len(lost), some(lost), len(extra),
			some(extra))
	}
	if !maps.Equal(markers, want.markers) {
		t.Errorf("%d keys have delete markers, expected %d", len(markers), len(want.markers))
	}
	up, err := c.ListMultipartUploads(t.Context(), openBucket, "", "", "", "", 100)
	if err != nil || len(up.Uploads) != 1 || up.Uploads[0].Key != "other" {
		t.Errorf("uploads: %+v, %v", up.Uploads, err)
	}
}

func difference(a, b map[string]bool) (out []string) {
	for k := range a {
		if !b[k] {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

func some(names []string) []string { return names[:min(3, len(names))] }

// removed returns how many versions and uploads the running server has removed, by its metrics.
func removed(t *testing.T, s *server) int64 {
	t.Helper()
	resp, err := http.Get(s.console + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var n float64
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "nebulaio_lifecycle_removed_total{") {
			_, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			one, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("the metric %q: %v", line, err)
			}
			n += one
		}
	}
	return int64(n)
}

// lifecycleReport is a report of `nebulaio lifecycle status --json`.
type lifecycleReport struct {
	Bucket string
	Pass   *struct{ Ended *time.Time }
	Total  struct{ Expired, Noncurrent, Markers, Uploads, Locked, Failed int64 }
}

func reports(t *testing.T, data string) []lifecycleReport {
	t.Helper()
	out, code := run(t, "lifecycle", "status", "--data", data, "--json")
	var all struct{ Buckets []lifecycleReport }
	if err := json.Unmarshal([]byte(out), &all); code != 0 || err != nil {
		t.Fatalf("lifecycle status: %d, %v\n%s", code, err, out)
	}
	return all.Buckets
}

// complete reports whether all passes have ended.
func complete(t *testing.T, data string) bool {
	t.Helper()
	all := reports(t, data)
	return !slices.ContainsFunc(all, func(r lifecycleReport) bool { return r.Pass == nil || r.Pass.Ended == nil })
}

func removedInAll(t *testing.T, data string) (n int64) {
	t.Helper()
	for _, r := range reports(t, data) {
		n += r.Total.Expired + r.Total.Noncurrent + r.Total.Markers + r.Total.Uploads
	}
	return n
}
