// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/xml"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/object"
)

// contents is the same page in versitygw's types.
func contents(e encoder, p *object.Page, owner *types.Owner) []s3response.Object {
	out := make([]s3response.Object, len(p.Objects))
	for i := range p.Objects {
		o := &p.Objects[i]
		sum := full(o)
		out[i] = s3response.Object{
			Key: ptr(e.text(o.Key)), ETag: ptr(quoted(o.ETag)), LastModified: &o.Modified, Size: &o.Size, Owner: owner,
			StorageClass: types.ObjectStorageClass(classOf(o.Attributes)), ChecksumAlgorithm: sum.algorithms(),
			ChecksumType: sum.Type,
		}
	}
	return out
}

// oddPage returns a page with odd names, which depends only on r.
func oddPage(r *rand.Rand) object.Page {
	alphabet := []string{"a", "Z", "/", " ", "&", "<", ">", `"`, "'", "\n", "\t", "\x01", "\xff", "ü", "\ufffe", "+", "%"}
	name := func() (s string) {
		for range 1 + r.IntN(12) {
			s += alphabet[r.IntN(len(alphabet))]
		}
		return s
	}
	var p object.Page
	for range r.IntN(5) {
		o := object.Info{Key: name(), ETag: name(), Size: r.Int64(), CRC64: r.Uint64(),
			Modified: time.UnixMilli(r.Int64N(4e12)), NoCRC64: r.IntN(3) == 0}
		if r.IntN(2) == 0 {
			o.Attributes = map[string]string{attrSumAlgo: "SHA256", attrSumType: "COMPOSITE", attrSum: "x"}
		}
		p.Objects = append(p.Objects, o)
	}
	for range r.IntN(3) {
		p.Prefixes = append(p.Prefixes, name())
	}
	return p
}

func TestEntriesAreThoseOfTheLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		p := oddPage(r)
		e := encoder(r.IntN(2) == 0)
		var owner *types.Owner
		w := entries{encoder: e}
		if r.IntN(2) == 0 {
			w.owners = &object.Bucket{Owner: "me & you"}
			owner = &types.Owner{ID: &w.owners.Owner, DisplayName: &w.owners.Owner}
		}
		whole := s3response.ListObjectsV2Result{Name: ptr("b"), Prefix: ptr("<EncodingType>"), EncodingType: e.kind()}
		bare, err := xml.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		whole.Contents, whole.CommonPrefixes = contents(e, &p, owner), e.prefixes(p.Prefixes)
		want, err := xml.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		var rctx fasthttp.RequestCtx
		rctx.Response.SetBody(bare)
		if err := w.insert(&rctx, &p); err != nil {
			t.Fatal(err)
		}
		mendReply(&rctx)
		if got := rctx.Response.Body(); string(got) != string(want) {
			t.Fatalf("page %+v:\n%s\nexpected\n%s", p, got, want)
		}
	}
}

func TestAReplyWithoutRoomForEntriesFails(t *testing.T) {
	var rctx fasthttp.RequestCtx
	rctx.Response.SetBody([]byte("<ListBucketResult></ListBucketResult>"))
	if err := (entries{}).insert(&rctx, &object.Page{Prefixes: []string{"a/"}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, ok := recover().(failure); !ok {
			t.Error("the page lost its entries without an error")
		}
	}()
	mendReply(&rctx)
}
