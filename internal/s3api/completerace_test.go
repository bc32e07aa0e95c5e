// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/xml"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

// overtakenStore is a store in which another request completes an upload while the parts of the upload are listed.
type overtakenStore struct {
	object.Store
	overtake atomic.Pointer[func()]
	empty    bool // the list has no parts, as if they were removed behind the upload's record
}

func (s *overtakenStore) ListParts(ctx context.Context, bucket, key, id string, after, limit int) ([]object.PartInfo,
	bool, error) {
	if f := s.overtake.Swap(nil); f != nil {
		(*f)()
		if s.empty {
			return nil, false, nil
		}
	}
	return s.Store.ListParts(ctx, bucket, key, id, after, limit)
}

// TestACompletionThatIsOvertakenSucceeds completes an upload twice at once: both requests have the same reply.
func TestACompletionThatIsOvertakenSucceeds(t *testing.T) {
	s := &overtakenStore{Store: model.New()}
	w := start(t, s, nil)
	w.must(200, "PUT", "/bucket", nil)
	for _, empty := range []bool{false, true} {
		s.empty = empty
		var up struct{ UploadId string }
		if err := xml.Unmarshal(w.must(200, "POST", "/bucket/key?uploads", nil).body, &up); err != nil {
			t.Fatal(err)
		}
		etag := w.must(200, "PUT", "/bucket/key?partNumber=1&uploadId="+up.UploadId, []byte("x")).Header.Get("ETag")
		complete := func(etag string) *reply {
			return w.do("POST", "/bucket/key?uploadId="+up.UploadId, fmt.Appendf(nil, "<CompleteMultipartUpload><Part>"+
				"<PartNumber>1</PartNumber><ETag>%s</ETag></Part></CompleteMultipartUpload>", etag))
		}
		if r := complete(`"00000000000000000000000000000000"`); r.code() != "InvalidPart" {
			t.Errorf("a part that is wrong: %d %s", r.StatusCode, r.body)
		}
		var first *reply
		overtake := func() { first = complete(etag) }
		s.overtake.Store(&overtake)
		second := complete(etag)
		if first.StatusCode != 200 || second.StatusCode != 200 || string(first.body) != string(second.body) {
			t.Errorf("empty list %v: %d %s, then %d %s", empty, first.StatusCode, first.body, second.StatusCode, second.body)
		}
	}
}
