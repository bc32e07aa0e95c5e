// SPDX-License-Identifier: Apache-2.0

package xmldoc

import (
	"bytes"
	"encoding/xml"
	"io"
	"testing"
)

// FuzzCount holds the count against the parser that makes objects of the elements: never less.
func FuzzCount(f *testing.F) {
	for _, s := range []string{"<Delete><Object/></Delete>", "<a:Object>", "<Object a='<Object>'>", "<!--<Object>-->",
		"<Object\t>", "<", "<?x?><Object></Object>"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		named, all := Count(doc, "Object")
		if named > all {
			t.Fatalf("%d of %d", named, all)
		}
		d := xml.NewDecoder(bytes.NewReader(doc))
		gotNamed, gotAll := 0, 0
		for {
			token, err := d.RawToken()
			if err != nil {
				if err != io.EOF {
					return // not read to its end, nor unmarshalled
				}
				break
			}
			if s, ok := token.(xml.StartElement); ok {
				if gotAll++; s.Name.Local == "Object" {
					gotNamed++
				}
			}
		}
		if gotNamed > named || gotAll > all {
			t.Fatalf("%q has %d of %d, counted were %d of %d", doc, gotNamed, gotAll, named, all)
		}
	})
}
