// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// mostDirectories is the largest number of buckets in one reply of ListDirectoryBuckets.
const mostDirectories = 1000

// nameAllowed returns an error if a directory bucket of this name cannot be created.
func (d *directories) nameAllowed(bucket string) error {
	zone, ok := object.ParseDirectory(bucket)
	if !ok {
		return s3err.GetBucketErr(s3err.ErrInvalidBucketName, bucket)
	}
	if len(d.o.Zones) > 0 && !slices.Contains(d.o.Zones, zone) {
		return refusal(http.StatusBadRequest, "InvalidBucketName", "This server has no zone "+strconv.QuoteToASCII(zone)+
			". Its zones are "+strings.Join(d.o.Zones, ", ")+".")
	}
	return nil
}

// newBucket is the document of CreateBucket.
type newBucket struct {
	LocationConstraint string
	Location           struct{ Name, Type string }
	Bucket             struct{ DataRedundancy, Type string }
}

// check returns an error if the document does not describe a directory bucket in the zone.
func (n *newBucket) check(zone string) error {
	switch {
	case n.LocationConstraint != "":
		return invalid("A directory bucket has a Location, and no LocationConstraint.")
	case n.Bucket.Type != "" && n.Bucket.Type != "Directory":
		return invalid("The type of the bucket is " + strconv.QuoteToASCII(n.Bucket.Type) + "; expected Directory.")
	case n.Location.Name != "" && n.Location.Name != zone:
		return invalid("The location is " + strconv.QuoteToASCII(n.Location.Name) + "; the name of the bucket has the zone " +
			strconv.QuoteToASCII(zone) + ".")
	case n.Location.Type != "" && n.Location.Type != "AvailabilityZone" && n.Location.Type != "LocalZone":
		return invalid("The type of the location is " + strconv.QuoteToASCII(n.Location.Type) +
			"; expected AvailabilityZone.")
	}
	return nil
}

// createBucket answers CreateBucket.
func (d *directories) createBucket(a *asked) error {
	a.rctx.SetUserValue(operationKey, "CreateBucket")
	if err := d.create(a); err != nil {
		return d.refuse(a.ctx, err)
	}
	a.rctx.Response.Header.Set("Location", "/"+a.bucket)
	return nil // status 200 without a body: SDKs take a body that is no XML for a failure
}

func (d *directories) create(a *asked) error {
	giveBack, refused := d.s.admitDocument(a.rctx, a.at)
	if refused != nil {
		return refused
	}
	defer giveBack()
	if d.s.opts.ReadOnly {
		return s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	if err := d.s.backend.iam.mayCreate(a.by.account, a.bucket); err != nil {
		return err
	}
	if err := d.nameAllowed(a.bucket); err != nil {
		return err
	}
	document, err := a.document()
	if err != nil {
		return err
	}
	zone, _ := object.ParseDirectory(a.bucket)
	if len(document) > 0 {
		var n newBucket
		if err := xml.Unmarshal(document, &n); err != nil {
			return s3err.GetAPIError(s3err.ErrMalformedXML)
		}
		if err := n.check(zone); err != nil {
			return err
		}
	}
	owner := strings.Clone(a.by.account.User())
	_, acl, err := policy.OwnersACL(owner)
	if err != nil {
		return err
	}
	bucket := strings.Clone(a.bucket)
	err = d.s.backend.store.CreateBucket(patient(a.rctx), object.Bucket{
		Name: bucket, Owner: owner, ETag: object.ETagCRC64, Settings: map[string][]byte{policy.SettingACL: acl,
			policy.SettingOwnership: []byte(types.ObjectOwnershipBucketOwnerEnforced)},
	})
	if errors.Is(err, object.ErrBucketExists) {
		if old, e := d.s.backend.store.Bucket(patient(a.rctx), bucket); e == nil && old.Owner == owner {
			return s3err.GetBucketErr(s3err.ErrBucketAlreadyOwnedByYou, bucket)
		}
		return s3err.GetBucketErr(s3err.ErrBucketAlreadyExists, bucket)
	}
	return d.s.backend.s3Error("CreateBucket", object.Ref{Bucket: bucket}, err)
}

// document returns the document of a request, after comparing it with what the signature covers.
func (a *asked) document() ([]byte, error) {
	text := a.rctx.Request.Body()
	if strings.HasPrefix(a.by.payload, streaming) {
		return nil, s3err.GetAPIError(s3err.ErrInvalidSHA256PayloadUsage)
	}
	if sum := sha256.Sum256(text); a.by.payload != "UNSIGNED-PAYLOAD" && a.by.payload != hex.EncodeToString(sum[:]) {
		return nil, s3err.GetContentSHA256MismatchErr(a.by.payload, hex.EncodeToString(sum[:]))
	}
	return text, nil
}

// directoryList is the reply to ListDirectoryBuckets.
type directoryList struct {
	XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListAllMyDirectoryBucketsResult"`
	Buckets struct {
		Bucket []directoryEntry
	}
	ContinuationToken string `xml:",omitempty"`
}

type directoryEntry struct {
	Name         string
	CreationDate string
	BucketRegion string
}

// listBuckets answers ListDirectoryBuckets, which only its service tells apart from ListBuckets.
func (d *directories) listBuckets(ctx fiber.Ctx) error {
	rctx := ctx.RequestCtx()
	rctx.SetUserValue(operationKey, "ListDirectoryBuckets")
	a := &asked{ctx: ctx, rctx: rctx, at: onService}
	if !rctx.IsGet() {
		return d.refuse(ctx, s3err.GetAPIError(s3err.ErrMethodNotAllowed))
	}
	var err error
	if a.by, err = d.authenticate(a); err != nil {
		return d.refuse(ctx, err)
	}
	if a.by.session != nil {
		return d.refuse(ctx, s3err.GetAPIError(s3err.ErrAccessDenied))
	}
	args := rctx.QueryArgs()
	limit := mostDirectories
	if text := string(args.Peek("max-directory-buckets")); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 || limit > mostDirectories {
			return d.refuse(ctx, invalid("max-directory-buckets is "+strconv.QuoteToASCII(text)+"; expected 0 to 1000."))
		}
	}
	after, err := keyOfToken(string(args.Peek("continuation-token")))
	if err != nil {
		return d.refuse(ctx, err)
	}
	list, err := d.listed(a, after, limit)
	if err != nil {
		return d.refuse(ctx, err)
	}
	text, err := xml.Marshal(list)
	if err != nil {
		return d.refuse(ctx, err)
	}
	return sendXML(ctx, bytes.TrimSpace(text))
}

// listed returns one page of the directory buckets of an account.
func (d *directories) listed(a *asked, after string, limit int) (*directoryList, error) {
	all, err := d.s.backend.store.ListBuckets(patient(a.rctx))
	if err != nil {
		return nil, d.s.backend.s3Error("ListDirectoryBuckets", object.Ref{}, err)
	}
	list := &directoryList{}
	every := d.s.backend.iam.listsAll(a.by.account.AccessKey)
	for i := range all {
		bk := &all[i]
		if !object.IsDirectory(bk.Name) || bk.Name <= after ||
			!every && bk.Owner != a.by.account.User() {
			continue
		}
		found := &list.Buckets.Bucket
		if len(*found) == limit {
			if limit > 0 {
				list.ContinuationToken = tokenOfKey((*found)[limit-1].Name)
			}
			break
		}
		*found = append(*found, directoryEntry{Name: bk.Name, CreationDate: bk.Created.UTC().Format(time.RFC3339Nano),
			BucketRegion: d.s.opts.Region})
	}
	return list, nil
}
