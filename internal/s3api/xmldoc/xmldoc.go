// SPDX-License-Identifier: Apache-2.0

// Package xmldoc checks the XML documents of S3 requests before versitygw parses them.
//
// versitygw ignores what it does not know in a document, and uses the last of two equal elements. It would acknowledge
// a restriction that it ignored. So the documents that restrict something are checked here first.
package xmldoc

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

// element lists the elements that an element may contain. Nil stands for text alone.
type element map[string]part

// part describes an element within another one.
type part struct {
	in   element
	many bool // it may occur more than once
	need bool // it has to occur
}

// documents are the known documents, by the name of the outermost element.
var documents = element{
	"VersioningConfiguration": {in: element{"Status": {}, "MfaDelete": {}}},
	"ObjectLockConfiguration": {in: element{
		"ObjectLockEnabled": {}, "Rule": {in: element{"DefaultRetention": {in: element{"Mode": {}, "Days": {},
			"Years": {}}}}},
	}},
	"Retention":         {in: element{"Mode": {}, "RetainUntilDate": {}}},
	"LegalHold":         {in: element{"Status": {}}},
	"Tagging":           {in: element{"TagSet": {in: element{"Tag": {many: true, in: element{"Key": {}, "Value": {}}}}}}},
	"OwnershipControls": {in: element{"Rule": {many: true, in: element{"ObjectOwnership": {}}}}},
	"AccessControlPolicy": {in: element{
		"Owner": {in: element{"ID": {}, "DisplayName": {}}},
		"AccessControlList": {in: element{"Grant": {many: true, in: element{
			"Grantee": {in: element{"ID": {}, "DisplayName": {}, "EmailAddress": {}, "URI": {}}}, "Permission": {},
		}}}},
	}},
	"Delete": {in: element{"Quiet": {}, "Object": {many: true, need: true, in: element{
		"Key": {}, "VersionId": {}, "ETag": {}, "LastModifiedTime": {}, "Size": {},
	}}}},
	"CORSConfiguration": {in: element{"CORSRule": {many: true, in: element{
		"ID": {}, "AllowedHeader": {many: true}, "AllowedMethod": {many: true}, "AllowedOrigin": {many: true},
		"ExposeHeader": {many: true}, "MaxAgeSeconds": {},
	}}}},
}

// Check returns why a document is refused: it is not XML, its outermost element has another name, or an element is
// unknown, missing or given twice. name has to be that of a known document.
func Check(body []byte, name string) error {
	d := xml.NewDecoder(bytes.NewReader(body))
	seen := false
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			if !seen {
				return fmt.Errorf("it has no element %s", name)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("it is no XML")
		}
		start, ok := t.(xml.StartElement)
		if !ok {
			continue
		}
		if start.Name.Local != name || seen {
			return fmt.Errorf("the element %.64q, expected one %s", start.Name.Local, name)
		}
		seen = true
		if err := readElement(d, name, documents[name].in); err != nil {
			return err
		}
	}
}

// readElement reads an element to its end. The depth is that of the description in.
func readElement(d *xml.Decoder, name string, in element) error {
	seen := map[string]bool{}
	for {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("it is no XML")
		}
		switch t := t.(type) {
		case xml.EndElement:
			for inner, p := range in {
				if p.need && !seen[inner] {
					return fmt.Errorf("the element %s has no %s", name, inner)
				}
			}
			return nil
		case xml.StartElement:
			inner := t.Name.Local
			p, ok := in[inner]
			switch {
			case !ok:
				return fmt.Errorf("the element %.64q in %s is not known", inner, name)
			case seen[inner] && !p.many:
				return fmt.Errorf("the element %s stands twice in %s", inner, name)
			}
			seen[inner] = true
			if err := readElement(d, inner, p.in); err != nil {
				return err
			}
		}
	}
}

// Count returns an upper bound of the start tags in an XML document: of one name, and of all names. It also counts tags
// in comments and CDATA sections, which no S3 client sends. It allocates nothing, so that a list can be refused before
// it is parsed.
func Count(doc []byte, name string) (named, all int) {
	for {
		at := bytes.IndexByte(doc, '<')
		if at < 0 {
			return named, all
		}
		doc = doc[at+1:]
		if len(doc) == 0 || doc[0] == '/' || doc[0] == '!' || doc[0] == '?' {
			continue
		}
		all++
		end := bytes.IndexAny(doc, " \t\r\n/><")
		if end < 0 {
			end = len(doc)
		}
		tag := doc[:end]
		if colon := bytes.LastIndexByte(tag, ':'); colon >= 0 {
			tag = tag[colon+1:]
		}
		if string(tag) == name {
			named++
		}
	}
}
