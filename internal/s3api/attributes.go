// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Names of the attributes of an object. The attribute of a user metadata entry is metaPrefix and the name of the
// entry.
const (
	attrType        = object.AttrType
	attrEncoding    = object.AttrEncoding
	attrDisposition = object.AttrDisposition
	attrLanguage    = object.AttrLanguage
	attrCache       = object.AttrCache
	attrExpires     = object.AttrExpires
	attrRedirect    = object.AttrRedirect
	attrTags        = object.AttrTags
	attrRetention   = object.AttrRetention
	attrHold        = object.AttrHold
	attrSumAlgo     = object.AttrSumAlgo
	attrSumType     = object.AttrSumType
	attrSum         = object.AttrSum
	attrUpload      = object.AttrUpload      // the upload that an object was completed from
	attrUploadParts = object.AttrUploadParts // the digest of the parts of that completion
	attrOwner       = object.AttrOwner
	attrACL         = object.AttrACL
	metaPrefix      = object.AttrMeta
)

// systemAttrs are the attributes that a copy keeps together with the user metadata. S3 does not copy the redirect.
var systemAttrs = []string{attrType, attrEncoding, attrDisposition, attrLanguage, attrCache, attrExpires}

// headers are the parts of a request that describe an object.
type headers struct {
	Type, Encoding, Disposition, Language, Cache, Expires, Redirect *string
	Metadata                                                        map[string]string
}

// attributes returns the headers as attributes with cloned strings, without empty ones.
func (h headers) attributes() map[string]string {
	m := make(map[string]string, 4+len(h.Metadata))
	set := func(name string, v *string) {
		if v != nil && *v != "" {
			m[name] = strings.Clone(*v)
		}
	}
	set(attrType, h.Type)
	set(attrEncoding, h.Encoding)
	set(attrDisposition, h.Disposition)
	set(attrLanguage, h.Language)
	set(attrCache, h.Cache)
	set(attrExpires, h.Expires)
	set(attrRedirect, h.Redirect)
	for k, v := range h.Metadata {
		m[metaPrefix+k] = strings.Clone(v)
	}
	return m
}

// check returns an error if a value cannot be sent in a reply's header. Only fields of a form can have such values.
func (h headers) check() error {
	for _, f := range [...]struct {
		name  string
		value *string
	}{
		{"Content-Type", h.Type}, {"Content-Encoding", h.Encoding}, {"Content-Disposition", h.Disposition},
		{"Content-Language", h.Language},
		{"Cache-Control", h.Cache}, {"Expires", h.Expires}, {"x-amz-website-redirect-location", h.Redirect},
	} {
		if f.value != nil && !printable(*f.value) {
			return invalid(f.name + " has control characters, which a header cannot have.")
		}
	}
	for k, v := range h.Metadata {
		if !token(k) || !printable(v) {
			return invalid("The metadata x-amz-meta-" + strconv.QuoteToASCII(k) + " cannot be a header.")
		}
	}
	return nil
}

// metadataOf returns the user metadata, never nil.
func metadataOf(attrs map[string]string) map[string]string {
	m := map[string]string{}
	for k, v := range attrs {
		if name, ok := strings.CutPrefix(k, metaPrefix); ok {
			m[name] = v
		}
	}
	return m
}

// copied returns the attributes that a copy keeps: headers and user metadata.
func copied(attrs map[string]string) map[string]string {
	m := map[string]string{}
	for _, name := range systemAttrs {
		if v, ok := attrs[name]; ok {
			m[name] = v
		}
	}
	for k, v := range attrs {
		if strings.HasPrefix(k, metaPrefix) {
			m[k] = v
		}
	}
	return m
}

func encodeTags(tags map[string]string) (string, error) {
	own := make(map[string]string, len(tags))
	maps.Copy(own, tags)
	doc, err := json.Marshal(own)
	return string(doc), err
}

// decodeTags returns the tags of an attribute or a setting. For "" it returns an empty map.
func decodeTags(doc string) (map[string]string, error) {
	tags := map[string]string{}
	if doc == "" {
		return tags, nil
	}
	if err := json.Unmarshal([]byte(doc), &tags); err != nil {
		return nil, errs.New(errs.Corrupt, "read tags", "", err.Error())
	}
	return tags, nil
}

func tagCount(attrs map[string]string) *int32 {
	doc := attrs[attrTags]
	if doc == "" {
		return nil
	}
	tags, err := decodeTags(doc)
	if err != nil || len(tags) == 0 {
		return nil
	}
	return ptr(int32(len(tags)))
}
