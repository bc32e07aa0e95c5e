// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

// farStore is a store with an upstream bucket "far". What the front end asks of the upstream is recorded. The objects
// are in a model, whose own bucket has no versions and no lock.
type farStore struct {
	*model.Store
	versioning object.Versioning
	lock       *object.Lock
	refuses    error // answer to a list of deletions without an object
	asked      []string
	written    map[string]string // attributes of the last PUT
	deleted    object.Deletion
	part       *object.PartRange
}

func newFar(t *testing.T) (*farStore, *world) {
	t.Helper()
	s := &farStore{Store: model.New(), versioning: object.VersioningEnabled,
		lock: &object.Lock{Mode: "COMPLIANCE", Days: 7}}
	for name, settings := range map[string]map[string][]byte{"far": {object.SettingUpstream: []byte("http://far")},
		"near": nil} {
		if err := s.CreateBucket(t.Context(), object.Bucket{Name: name, Owner: rootKey, Settings: settings}); err != nil {
			t.Fatal(err)
		}
	}
	return s, start(t, s, nil)
}

func (s *farStore) Upstream(bucket string) object.Upstream {
	if bucket != "far" {
		return nil
	}
	return s
}

func (s *farStore) Versioning(context.Context) (object.Versioning, error) {
	s.asked = append(s.asked, "versioning")
	return s.versioning, nil
}

func (s *farStore) SetVersioning(_ context.Context, v object.Versioning) error {
	s.versioning = v
	return nil
}

func (s *farStore) Lock(context.Context) (*object.Lock, error) {
	s.asked = append(s.asked, "lock")
	return s.lock, nil
}

func (s *farStore) SetLock(_ context.Context, l object.Lock) error {
	s.lock = &l
	return nil
}

func (s *farStore) DeleteNothing(context.Context) error {
	s.asked = append(s.asked, "nothing")
	return s.refuses
}

func (s *farStore) Put(ctx context.Context, p object.Put) (object.Info, error) {
	s.written = p.Attributes
	i, err := s.Store.Put(ctx, p)
	i.NoCRC64 = true // the upstream keeps no checksum
	return i, err
}

func (s *farStore) Delete(ctx context.Context, d object.Deletion) (object.Deleted, error) {
	s.deleted = d
	return s.Store.Delete(ctx, d)
}

func (s *farStore) Stat(ctx context.Context, ref object.Ref) (object.Info, error) {
	i, err := s.Store.Stat(ctx, ref)
	if n, asked := object.AsksForDetails(ctx); asked && n > 0 && ref.Bucket == "far" {
		i.Part = s.part
	}
	i.Unnamed = ref.Version == ""
	return i, err
}

// TestTheUpstreamDecidesOnVersionsAndLocks uses a bucket whose versions and locks are settings of another server.
func TestTheUpstreamDecidesOnVersionsAndLocks(t *testing.T) {
	s, w := newFar(t)
	status := func(what string, r *reply, want int, text string) {
		t.Helper()
		if r.StatusCode != want || !strings.Contains(string(r.body), text) {
			t.Errorf("%s: %d %s, expected %d with %q", what, r.StatusCode, r.body, want, text)
		}
	}
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	lock := []string{"X-Amz-Object-Lock-Mode", "GOVERNANCE", "X-Amz-Object-Lock-Retain-Until-Date", until}
	r := w.do(http.MethodPut, "/far/k", []byte("abc"), lock...)
	status("a PUT with a retention", r, 200, "")
	if s.written[attrRetention] == "" || r.Header.Get("X-Amz-Checksum-Crc64nvme") != "" {
		t.Errorf("the upstream got %v, the client %v", s.written, r.Header)
	}
	status("a PUT with a retention in an own bucket", w.do(http.MethodPut, "/near/k", []byte("abc"), lock...), 400, "")
	if len(s.asked) > 0 {
		t.Errorf("the PUTs have asked the upstream for %q", s.asked)
	}
	status("versioning", w.do(http.MethodGet, "/far?versioning", nil), 200, "<Status>Enabled</Status>")
	status("suspend", w.do(http.MethodPut, "/far?versioning",
		[]byte("<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>")), 200, "")
	status("lock", w.do(http.MethodGet, "/far?object-lock", nil), 200, "<Days>7</Days>")
	const doc = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>" +
		"<Mode>GOVERNANCE</Mode><Years>2</Years></DefaultRetention></Rule></ObjectLockConfiguration>"
	status("a new lock", w.do(http.MethodPut, "/far?object-lock", []byte(doc), "Content-MD5", md5Base64(doc)), 200, "")
	if s.versioning != object.VersioningSuspended || *s.lock != (object.Lock{Mode: "GOVERNANCE", Years: 2}) {
		t.Errorf("the upstream has %q and %+v", s.versioning, s.lock)
	}
	s.lock = nil
	status("no lock", w.do(http.MethodGet, "/far?object-lock", nil), 404, "ObjectLockConfigurationNotFoundError")
	status("a retention without lock", w.do(http.MethodGet, "/far/k?retention", nil), 400, "InvalidRequest")
	if bk, err := s.Bucket(t.Context(), "far"); err != nil || bk.Versioning != "" || bk.Settings[settingLock] != nil {
		t.Errorf("the local record has %+v: %v", bk, err)
	}
	for bypass, want := range map[string]bool{"": false, "true": true} {
		w.do(http.MethodDelete, "/far/k", nil, "X-Amz-Bypass-Governance-Retention", bypass)
		if s.deleted.Bypass != want {
			t.Errorf("bypass %q reaches the upstream as %v", bypass, s.deleted.Bypass)
		}
	}
}

// TestAListWithoutAnObject is refused as S3 does, unless an upstream accepts it.
func TestAListWithoutAnObject(t *testing.T) {
	s, w := newFar(t)
	send := func(bucket string) *reply {
		return w.do(http.MethodPost, "/"+bucket+"?delete", []byte("<Delete/>"), "Content-MD5", md5Base64("<Delete/>"))
	}
	if r := send("near"); r.StatusCode != 400 || r.code() != "MalformedXML" {
		t.Errorf("an own bucket: %d %s", r.StatusCode, r.body)
	}
	if r := send("none"); r.StatusCode != 400 {
		t.Errorf("no bucket: %d %s", r.StatusCode, r.body)
	}
	if r := send("far"); r.StatusCode != 200 || !slices.Equal(s.asked, []string{"nothing"}) {
		t.Errorf("an upstream that accepts it: %d %s, asked for %q", r.StatusCode, r.body, s.asked)
	}
	s.refuses = &object.Refusal{Kind: errs.Invalid, Status: 400, Code: "MalformedXML", Message: "no"}
	if r := send("far"); r.StatusCode != 400 || r.code() != "MalformedXML" {
		t.Errorf("an upstream that refuses it: %d %s", r.StatusCode, r.body)
	}
}

// TestAPartWhosePlaceTheUpstreamNames is read as the part of an object of ours.
func TestAPartWhosePlaceTheUpstreamNames(t *testing.T) {
	s, w := newFar(t)
	w.do(http.MethodPut, "/far/k", []byte("0123456789"))
	s.part = &object.PartRange{Range: object.Range{Off: 6, N: 4}, Count: 2}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		r := w.do(method, "/far/k?partNumber=2", nil)
		if h := r.Header; r.StatusCode != 206 || h.Get("X-Amz-Mp-Parts-Count") != "2" ||
			h.Get("Content-Range") != "bytes 6-9/10" ||
			method == http.MethodGet && string(r.body) != "6789" || method == http.MethodHead &&
			h.Get("X-Amz-Version-Id") != "" {
			t.Errorf("%s: %d %q %v", method, r.StatusCode, r.body, h)
		}
	}
	s.part = &object.PartRange{Range: object.Range{N: 10}} // the upstream ignores part numbers
	if r := w.do(http.MethodGet, "/far/k?partNumber=2", nil); r.StatusCode != 200 || string(r.body) != "0123456789" {
		t.Errorf("%d %q", r.StatusCode, r.body)
	}
	if r := w.do(http.MethodHead, "/far/k?versionId=null", nil); r.Header.Get("X-Amz-Version-Id") != "null" {
		t.Errorf("a version that was asked for: %v", r.Header)
	}
}
