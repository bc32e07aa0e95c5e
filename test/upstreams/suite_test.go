// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/s3suite/player"
	"github.com/nebulaio/nebulaio/test/upstreams"
)

// concerns selects the tests of versitygw's suite that are about objects and uploads. Tests of buckets, accounts and
// policies concern the node and not the upstream; test/s3suite runs them.
var concerns = regexp.MustCompile(`^(PutObject|GetObject|HeadObject|GetObjectAttributes|ListObjects|ListObjectsV2|` +
	`DeleteObject|DeleteObjects|CopyObject|CreateMultipartUpload|UploadPart|UploadPartCopy|ListParts|` +
	`ListMultipartUploads|AbortMultipartUpload|CompleteMultipartUpload|PutObjectTagging|GetObjectTagging|` +
	`DeleteObjectTagging)_`)

// The suite numbers its buckets, beginning anew in each process. Each number is an upstream bucket of the node. The tests
// run in batches, so that the numbers suffice.
const bucketsOfSuite, batch = 250, 50

// play runs tests of the suite in batches.
func play(t *testing.T, u *upstreams.Upstream, target player.Target, names []string) map[string]*player.Result {
	t.Helper()
	all := map[string]*player.Result{}
	for some := range slices.Chunk(names, batch) {
		emptySuite(t, u)
		maps.Copy(all, player.Run(t, target, strings.Join(some, ",")))
	}
	emptySuite(t, u)
	return all
}

// ours lists, for each upstream, the tests that pass at the upstream and fail through the node, with the reason. A test
// that passes must be removed from the list.
var ours = map[upstreams.Kind]map[string]string{}

// TestSuiteThroughANode runs versitygw's suite at the upstream itself and at a node in front of the upstream. What
// passes at the upstream must pass at the node: other failures are the upstream's own.
func TestSuiteThroughANode(t *testing.T) {
	for _, kind := range []upstreams.Kind{upstreams.MinIO, upstreams.Ceph} {
		t.Run(string(kind), func(t *testing.T) {
			u := upstream(t, kind)
			names := slices.DeleteFunc(player.Names(), func(name string) bool { return !concerns.MatchString(name) })
			if only := os.Getenv(enable + "_TESTS"); only != "" {
				names = strings.Split(only, ",")
			}
			alone := play(t, u, player.Target{Endpoint: u.Endpoint, Access: upstreams.Access, Secret: upstreams.Secret}, names)
			var list []bucketAt
			for i := range bucketsOfSuite {
				list = append(list, bucketAt{name: fmt.Sprintf("test-bucket-%d", i+1), endpoint: u.Endpoint})
			}
			n := startNode(t, tempDir(t), configuration(list, ""))
			target := player.Target{Endpoint: front(t, u, n), Access: user, Secret: password}
			through := play(t, u, target, names)
			compare(t, kind, alone, through, func(names []string) map[string]*player.Result {
				return play(t, u, target, names)
			})
		})
	}
}

// compare judges the results at the node by those at the upstream. A test that fails is run again alone, because a few
// have time limits.
func compare(t *testing.T, kind upstreams.Kind, alone, through map[string]*player.Result,
	again func([]string) map[string]*player.Result) {
	t.Helper()
	failed := func(r *player.Result) bool { return r == nil || r.Passed < r.Ran }
	var both, theirs, worse []string
	for _, name := range slices.Sorted(maps.Keys(alone)) {
		switch {
		case failed(alone[name]):
			theirs = append(theirs, name)
		case failed(through[name]):
			worse = append(worse, name)
		default:
			both = append(both, name)
		}
	}
	if len(worse) > 0 && len(worse) < 60 {
		second := again(worse)
		worse = slices.DeleteFunc(worse, func(name string) bool { return second[name] != nil && !failed(second[name]) })
	}
	t.Logf("%d tests: %d pass at %s and at the node, %d fail at %s itself, %d fail at the node alone", len(alone),
		len(both), kind, len(theirs), kind, len(worse))
	t.Logf("failures of %s itself: %s", kind, strings.Join(theirs, " "))
	for _, name := range worse {
		if ours[kind][name] == "" {
			why := "it did not run"
			if through[name] != nil {
				why = through[name].Why
			}
			t.Errorf("%s passes at %s and fails at the node: %s", name, kind, why)
		}
	}
	for name := range ours[kind] {
		if !slices.Contains(worse, name) && alone[name] != nil {
			t.Errorf("%s is listed as failing and does not fail: take it out of the list", name)
		}
	}
	if len(both) < 50 && os.Getenv(enable+"_TESTS") == "" {
		t.Errorf("only %d tests pass on both sides", len(both))
	}
}

// front stands between the suite and the node: it makes and removes the suite's buckets at the upstream, because
// upstream buckets are settings of a node and not made by its clients. Everything else goes to the node as it came.
func front(t *testing.T, u *upstreams.Upstream, n *node) string {
	t.Helper()
	to, err := url.Parse("http://" + n.host)
	if err != nil {
		t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // it is signed
	}}
	theirs := direct(t, u)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		query := r.URL.Query()
		query.Del("x-id") // names the operation
		if key != "" || len(query) > 0 || r.Method != http.MethodPut && r.Method != http.MethodDelete {
			pass.ServeHTTP(w, r)
			return
		}
		var err error
		if r.Method == http.MethodPut {
			err = theirs.MakeBucket(r.Context(), bucket, minio.MakeBucketOptions{Region: upstreams.Region,
				ObjectLocking: r.Header.Get("X-Amz-Bucket-Object-Lock-Enabled") == "true"})
		} else {
			err = theirs.RemoveBucket(r.Context(), bucket)
		}
		switch status := minio.ToErrorResponse(err).StatusCode; {
		case err == nil && r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case err != nil && status != 0:
			w.WriteHeader(status)
		case err != nil:
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// emptySuite removes buckets that tests of the suite have left at the upstream.
func emptySuite(t *testing.T, u *upstreams.Upstream) {
	t.Helper()
	c := direct(t, u)
	list, err := c.ListBuckets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		if !strings.HasPrefix(b.Name, "test-bucket-") {
			continue
		}
		removeBucket(t.Context(), c, b.Name)
	}
}

func removeBucket(ctx context.Context, c *minio.Core, bucket string) {
	for o := range c.Client.ListObjects(ctx, bucket, minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
		if o.Err == nil {
			_ = c.RemoveObject(ctx, bucket, o.Key, minio.RemoveObjectOptions{VersionID: o.VersionID, GovernanceBypass: true,
				ForceDelete: false})
		}
	}
	for o := range c.ListIncompleteUploads(ctx, bucket, "", true) {
		if o.Err == nil {
			_ = c.RemoveIncompleteUpload(ctx, bucket, o.Key)
		}
	}
	_ = c.RemoveBucket(ctx, bucket)
}
