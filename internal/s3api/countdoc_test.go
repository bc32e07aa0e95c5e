// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

// TestLongListsCostNothing sends the documents that once took 36 times their size.
func TestLongListsCostNothing(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("x"))
	repeat := func(n int, root, element string) []byte {
		return []byte("<" + root + ">" + strings.Repeat(element, n) + "</" + root + ">")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for name, c := range map[string]struct {
		path, code string
		body       []byte
	}{
		"14 MiB of keys": {"/bucket?delete", "MaxMessageLengthExceeded",
			repeat(350_000, "Delete", "<Object><Key>key</Key></Object>")},
		"4 MiB of keys": {"/bucket?delete", "MalformedXML",
			repeat(110_000, "Delete", "<Object><Key>key</Key></Object>")},
		"1,001 keys": {"/bucket?delete", "MalformedXML",
			repeat(1001, "Delete", "<Object><Key>key</Key></Object>")},
		"keys with a prefix": {"/bucket?delete", "MalformedXML",
			repeat(1001, "Delete", `<s:Object xmlns:s="a"><Key>key</Key></s:Object>`)},
		"keys of nothing":            {"/bucket?delete", "MalformedXML", repeat(100_000, "Delete", "<Object/>")},
		"elements that nobody knows": {"/bucket?delete", "MalformedXML", repeat(500_000, "Delete", "<a/>")},
		"10,001 parts": {"/bucket/key?uploadId=1", "MalformedXML",
			repeat(10_001, "CompleteMultipartUpload", "<Part><PartNumber>1</PartNumber></Part>")},
		"3 MiB of nesting": {"/bucket/key?uploadId=1", "MalformedXML", []byte(strings.Repeat("<a>", 1<<20))},
		"tags": {"/bucket?tagging", "MaxMessageLengthExceeded",
			repeat(10_000, "Tagging", "<Tag><Key>a</Key></Tag>")},
		"rules of CORS": {"/bucket?cors", "MaxMessageLengthExceeded",
			repeat(10_000, "CORSConfiguration", "<CORSRule></CORSRule>")},
		"a policy": {"/bucket?policy", "MaxMessageLengthExceeded", []byte(strings.Repeat("[", 100_000))},
		"grants": {"/bucket?acl", "MaxMessageLengthExceeded",
			repeat(10_000, "AccessControlPolicy", "<Grant></Grant>")},
		"a configuration": {"/bucket", "MaxMessageLengthExceeded",
			repeat(10_000, "CreateBucketConfiguration", "<Tag></Tag>")},
	} {
		method := "PUT"
		if strings.Contains(c.path, "delete") || strings.Contains(c.path, "uploadId") {
			method = "POST"
		}
		if r := w.do(method, c.path, c.body, "Content-MD5", md5Base64(string(c.body))); r.StatusCode != 400 ||
			r.code() != c.code {
			t.Errorf("%s: %d %s, expected 400 %s", name, r.StatusCode, r.code(), c.code)
		}
	}
	runtime.ReadMemStats(&after)
	// The client's and the server's copies of the bodies are in it. Unmarshalled, the first alone would take 512 MiB.
	if took := after.TotalAlloc - before.TotalAlloc; took > 400<<20 {
		t.Errorf("refusing them took %d MiB", took>>20)
	}
	w.must(200, "GET", "/bucket/key", nil)
	doc := "<Delete>" + strings.Repeat("<Object><Key>"+strings.Repeat("&quot;", 300)+
		"</Key><VersionId>null</VersionId></Object>", maxDeletions) + "</Delete>"
	w.must(200, "POST", "/bucket?delete", []byte(doc), "Content-MD5", md5Base64(doc))
}

// TestTenThousandPartsAreOneDocument makes the longest list of parts that clients send.
func TestTenThousandPartsAreOneDocument(t *testing.T) {
	part := fmt.Sprintf("  <Part>\n    <ETag>&quot;%s&quot;</ETag>\n    <PartNumber>10000</PartNumber>\n    "+
		"<ChecksumSHA512>%s</ChecksumSHA512>\n  </Part>\n",
		strings.Repeat("a", 32), strings.Repeat("b", 88))
	if n := len(part) * object.MaxParts; n > longDocument {
		t.Errorf("it has %d bytes, and %d are allowed", n, longDocument)
	}
}

// TestSlotsForDocumentsComeBack takes all slots, waits for one in vain, and gets one that was given back.
func TestSlotsForDocumentsComeBack(t *testing.T) {
	s := &Server{documents: make(chan struct{}, 1)}
	first := s.takeSlot(largeDocument + 1)
	if first == nil || s.takeSlot(largeDocument) == nil {
		t.Fatal("a free slot was not given")
	}
	if s.takeSlot(largeDocument+1) != nil {
		t.Error("a slot was given twice")
	}
	first()
	if s.takeSlot(largeDocument+1) == nil {
		t.Error("a slot did not come back")
	}
}

// TestDocumentsWithTricks sends XML that other parsers expand or follow.
func TestDocumentsWithTricks(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	for name, doc := range map[string]string{
		"an entity":          `<!DOCTYPE a [<!ENTITY e "x">]><Tagging><TagSet><Tag><Key>&e;</Key><Value>v</Value></Tag></TagSet></Tagging>`,
		"a billion laughs":   `<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><Tagging><TagSet><Tag><Key>&b;</Key><Value>v</Value></Tag></TagSet></Tagging>`,
		"a file":             `<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><Tagging><TagSet><Tag><Key>k</Key><Value>&e;</Value></Tag></TagSet></Tagging>`,
		"depth":              strings.Repeat("<a>", 30_000),
		"half a document":    `<Tagging><TagSet>`,
		"another encoding":   `<?xml version="1.0" encoding="UTF-16"?><Tagging></Tagging>`,
		"a key of no UTF-8":  "<Tagging><TagSet><Tag><Key>\xff</Key><Value>v</Value></Tag></TagSet></Tagging>",
		"nothing":            "",
		"a control byte":     "<Tagging><TagSet><Tag><Key>a\x00</Key><Value>v</Value></Tag></TagSet></Tagging>",
		"a second key alike": `<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag><Tag><Key>k</Key><Value>w</Value></Tag></TagSet></Tagging>`,
	} {
		if r := w.do("PUT", "/bucket?tagging", []byte(doc), "Content-MD5", md5Base64(doc)); r.StatusCode != 400 {
			t.Errorf("%s: %d %s", name, r.StatusCode, r.body)
		}
	}
	if r := w.do("GET", "/bucket?tagging", nil); r.StatusCode != 404 {
		t.Errorf("tags were set: %s", r.body)
	}
}
