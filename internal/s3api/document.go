// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/valyala/fasthttp"
)

// versitygw passes over what it does not know in a document of XML, and takes the last of what comes twice. A
// restriction that it passes over would be acknowledged and not kept, so the documents that restrict something are
// read here first.

// element is what an element of a document may have in it. Nil: text alone.
type element map[string]part

// part is an element within another.
type part struct {
	in   element
	many bool // it may stand there more than once
	need bool // it must stand there
}

// The documents that settings are put with, by the name of the outermost element.
var documents = element{
	"VersioningConfiguration": {in: element{"Status": {}, "MfaDelete": {}}},
	"ObjectLockConfiguration": {in: element{
		"ObjectLockEnabled": {}, "Rule": {in: element{"DefaultRetention": {in: element{"Mode": {}, "Days": {}, "Years": {}}}}},
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

// checkDocument refuses the document of a request, which has a given name, where it has elements that it cannot
// have, one twice or none of those that it needs.
func checkDocument(ctx context.Context, name string) error {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return nil
	}
	body := rctx.Request.Body()
	if len(body) == 0 {
		return nil // what is asked for stands in headers
	}
	if err := readDocument(body, name); err != nil {
		return refusal(http.StatusBadRequest, "MalformedXML",
			"The XML you provided was not well-formed or did not validate against our published schema: "+err.Error()+".")
	}
	return nil
}

func readDocument(body []byte, name string) error {
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

// readElement reads an element to its end. Documents are a few elements deep, as in has it.
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
