// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
)

// refusedHeader is a header of a feature that this server does not have, with the name of the feature.
type refusedHeader struct{ name, what string }

// Headers of features that this server does not have. They must not be ignored: a client that gets status 200 would
// believe that the feature was applied.
var refusedHeaders = []refusedHeader{
	{"X-Amz-Rdma-Token", "transfers over RDMA"},
	{"X-Amz-Write-Offset-Bytes", "appending to objects"},
	{"X-Amz-Rename-Source", "renaming objects"},
	{"X-Amz-S3session-Token", "sessions of S3 Express"},
	{"X-Amz-Create-Session-Mode", "sessions of S3 Express"},
}

// knownArgs are the query arguments that this front end uses or refuses by itself. An unknown argument is refused
// if the request changes something. An unknown argument without a value is refused too, because it names a
// sub-resource.
var knownArgs = setOf(
	// sub-resources
	"accelerate", "acl", "analytics", "attributes", "cors", "delete", "encryption", "id", "intelligent-tiering",
	"inventory", "legal-hold", "lifecycle", "location", "logging", "metrics", "notification", "object-lock",
	"ownershipControls", "partNumber", "policy", "policyStatus", "publicAccessBlock", "replication", "requestPayment",
	"restore", "retention", "select", "select-type", "tagging", "uploadId", "uploads", "versionId",
	"versioning", "versions", "website",
	// parameters
	"continuation-token", "delimiter", "encoding-type", "fetch-owner", "key-marker", "list-type", "marker",
	"max-buckets", "max-keys", "max-parts", "max-uploads", "part-number-marker", "prefix", "start-after",
	"upload-id-marker", "version-id-marker", "bucket-region", "x-id", "allow-unordered",
	"response-cache-control", "response-content-disposition", "response-content-encoding",
	"response-content-language", "response-content-type", "response-expires",
	// the admin interface
	"access", "bucket", "owner",
	"x-amz-security-token",
)

// refusedArgs are the sub-resources of S3 that are refused even if they have a value.
var refusedArgs = map[string]string{
	"renameObject":             "renaming objects",
	"session":                  "sessions of S3 Express",
	"append":                   "appending to objects",
	"torrent":                  "BitTorrent",
	"position":                 "appending to objects",
	"metadataTable":            "metadata tables",
	"metadataConfiguration":    "metadata tables",
	"metadataInventoryTable":   "metadata tables",
	"metadataJournalTable":     "metadata tables",
	"abac":                     "attribute-based access control",
	"encryptionConfigurations": "encryption at rest",
	"objectEncryption":         "encryption at rest",
}

// onlyHeaders are the beginnings of headers that some signers move into a URL. versitygw does not read them there,
// and would ignore a lock, a condition or a copy source.
var onlyHeaders = []string{
	"x-amz-object-lock-", "x-amz-bypass-", "x-amz-copy-source", "x-amz-tagging", "x-amz-expected-",
	"x-amz-source-expected-", "x-amz-if-", "x-amz-server-side-encryption",
}

// refusedOperations are unsupported operations that SDKs name in the argument x-id.
var refusedOperations = setOf("RenameObject", "CreateSession", "ListDirectoryBuckets", "WriteGetObjectResponse",
	"UpdateObjectEncryption")

func setOf(names ...string) map[string]struct{} {
	m := make(map[string]struct{}, len(names))
	for _, n := range names {
		m[n] = struct{}{}
	}
	return m
}

// guard checks every request before the router, and corrects the reply. It refuses features of S3 that this server
// does not have with status 501. versitygw would mistake such a request for another one: a rename for the PUT of an
// empty object, a session for a listing.
func (s *Server) guard(ctx fiber.Ctx) (err error) {
	defer s.catch(ctx, &err)
	rctx := ctx.RequestCtx()
	watchEnd(ctx)
	if s.discovers(rctx) {
		return s.discover(ctx)
	}
	if w := (warmer{s}); w.asked(rctx) {
		return w.warm(ctx)
	}
	if s.tokens.asked(rctx) {
		return s.tokens.serve(ctx)
	}
	if err := s.prepare(rctx); err != nil {
		return answer(ctx, err)
	}
	if done, err := s.directories.serve(ctx); done {
		return err
	}
	at := levelOf(rctx)
	plain := plainQuery(rctx.QueryArgs())
	data := carriesData(rctx, at, plain)
	if err := s.check(rctx, at, data, plain); err != nil {
		return answer(ctx, err)
	}
	if !data {
		giveBack, err := s.admitDocument(rctx, at)
		if err != nil {
			return answer(ctx, err)
		}
		defer giveBack()
	}
	if early(string(rctx.QueryArgs().Peek("X-Amz-Date"))) {
		return answer(ctx, notYet())
	}
	rctx.SetUserValue(requestKey, ctx) // for allowed
	if !grantable(rctx, at, plain) {
		rctx.SetUserValue(ownersKey, true)
	}
	if err := s.admitPublicDeletion(ctx, at); err != nil {
		return answer(ctx, err)
	}
	if err := admitCreation(s, ctx, at, plain); err != nil {
		return answer(ctx, err)
	}
	switch {
	case data && rctx.IsPut():
		if served, err := (fastPath{s}).put(ctx); served {
			return err
		}
	case (rctx.IsGet() || rctx.IsHead()) && at == onObject:
		if served, err := (fastPath{s}).get(ctx); served {
			return err
		}
	}
	disguise(ctx)
	mendTrailer(ctx)
	checkChunks(ctx)
	pass(rctx)
	if err := ctx.Next(); err != nil {
		return s.fail(ctx, err)
	}
	if err := s.mendRefusal(ctx); err != nil {
		return err
	}
	s.showPolicy(ctx)
	if err := showACL(s, ctx, at); err != nil {
		return err
	}
	mendReply(rctx)
	mendDenied(s, rctx)
	mendLocation(rctx)
	if rctx.IsPost() && at == onObject && rctx.QueryArgs().Has("select") &&
		(rctx.Response.StatusCode() == http.StatusOK || rctx.Response.StatusCode() == http.StatusMethodNotAllowed) {
		// versitygw has begun an event stream with this error as its first event. Clients expect the error as the
		// status.
		return answer(ctx, notImplemented("select", "S3 Select"))
	}
	if done, err := bucketEncryption(ctx, s); done {
		return err
	}
	if done, err := answerBlock(s, ctx); done {
		return err
	}
	return s.answerUnset(ctx)
}

// prepare checks the load, the path and the number of signatures of a request, and converts a signature of version 2.
// All further checks rely on these steps.
func (s *Server) prepare(rctx *fasthttp.RequestCtx) s3err.S3Error {
	if s.crowd.full() {
		return s3err.GetAPIError(s3err.ErrSlowDown)
	}
	if err := checkName(rctx); err != nil {
		return err
	}
	if err := checkMechanism(rctx); err != nil {
		return err
	}
	return s.convertV2(rctx)
}

// check returns an error if a request is refused before its signature is verified. plain reports that all arguments
// belong to the signature, so that none of them can be refused.
func (s *Server) check(rctx *fasthttp.RequestCtx, at level, data, plain bool) s3err.S3Error {
	h := noticeHeaders(&rctx.Request.Header)
	if h.encryption {
		rctx.SetUserValue(encryptionKey, true)
	}
	if h.emptyMatch {
		// versitygw treats an empty ETag as no condition, and would overwrite the object although no ETag can
		// match.
		return s3err.GetPreconditionFailedErr(s3err.ConditionIfMatch)
	}
	if r := h.refused; r != nil {
		if r.name == "X-Amz-Rdma-Token" {
			// With this header, clients retry over HTTP. They treat any other reply as success.
			rctx.Response.Header.Set("x-amz-rdma-reply", "501")
		}
		return notImplemented(r.name, r.what)
	}
	if args := rctx.QueryArgs(); !plain {
		if name, what := refusedQuery(args, rctx.IsGet() || rctx.IsHead() || rctx.IsOptions()); name != "" {
			return notImplemented(name, what)
		}
	}
	if h.origin {
		rctx.SetUserValue(originKey, true)
	}
	if err := checkPayload(rctx, &h); err != nil {
		return err
	}
	if !plain {
		if err := misplaced(rctx, at); err != nil {
			return err
		}
	}
	if err := checkArgs(rctx, &h); err != nil {
		return err
	}
	if at == onBucket && rctx.IsPut() && !plain && argumentACL(rctx) {
		return notImplemented("X-Amz-Acl", "it has to be a header")
	}
	if data {
		return checkLength(rctx, h.decoded)
	}
	return nil
}

// admitDocument limits the size of a document and the time in which it must arrive. The caller calls the returned
// function after the reply.
func (s *Server) admitDocument(rctx *fasthttp.RequestCtx, at level) (func(), s3err.S3Error) {
	n := rctx.Request.Header.ContentLength()
	most := maxDocument(rctx, at)
	if n == chunked || int64(n) > most {
		return nil, s3err.GetMaxMessageLengthExceeded(most)
	}
	if n > 0 {
		wait := s.opts.Limits.Header + time.Duration(n)*time.Second/documentRate
		_ = netConn(rctx).SetReadDeadline(time.Now().Add(wait)) // a closed connection fails at the read
	}
	giveBack := s.takeSlot(n)
	if giveBack == nil {
		return nil, s3err.GetAPIError(s3err.ErrSlowDown)
	}
	return giveBack, nil
}

// chunked is the Content-Length that fasthttp reports for a chunked body.
const chunked = -1

// level is the target of a request: the service, a bucket or an object.
type level int

const (
	onService level = iota
	onBucket
	onObject
)

// levelOf returns the target of a request by its path, as the router will interpret the path.
func levelOf(rctx *fasthttp.RequestCtx) level {
	switch bucket, key := splitPath(rctx); {
	case key != "":
		return onObject
	case bucket != "":
		return onBucket
	}
	return onService
}

// splitPath returns the bucket and the key of a request's path, as the router will interpret the path.
func splitPath(rctx *fasthttp.RequestCtx) (bucket, key string) {
	bucket, key, _ = strings.Cut(strings.TrimPrefix(unescape(string(rctx.URI().PathOriginal())), "/"), "/")
	return bucket, key
}

// subResources are the sub-resources for which PUT and DELETE have routes. The router ignores any other argument, and
// would then write or delete the object or the bucket itself: DELETE ?acl would delete the object.
var subResources = map[level]map[string]map[string]struct{}{
	onBucket: {
		"PUT": setOf("accelerate", "acl", "analytics", "cors", "encryption", "intelligent-tiering", "inventory",
			"lifecycle", "logging", "metrics",
			"notification", "object-lock", "ownershipControls", "policy", "publicAccessBlock", "replication", "requestPayment",
			"tagging", "versioning", "website"),
		"DELETE": setOf("analytics", "cors", "encryption", "intelligent-tiering", "inventory", "lifecycle", "metrics",
			"ownershipControls", "policy",
			"publicAccessBlock", "replication", "tagging", "website"),
	},
	onObject: {
		"PUT":    setOf("acl", "legal-hold", "partNumber", "retention", "tagging", "uploadId"),
		"DELETE": setOf("tagging", "uploadId", "versionId"),
	},
}

// ofSubResources are the arguments that have a meaning only together with a sub-resource.
var ofSubResources = map[level]string{onBucket: "id", onObject: "versionId"}

// misplaced returns an error if a PUT or DELETE has an argument that S3 allows only in other requests.
func misplaced(rctx *fasthttp.RequestCtx, at level) s3err.S3Error {
	known, ok := subResources[at][string(rctx.Method())]
	if !ok {
		return nil
	}
	named, more, empty := false, false, false
	for k, v := range rctx.QueryArgs().All() {
		name := string(k)
		if name == "versionId" && len(v) == 0 {
			more, empty = true, true // SDKs send an empty version with a sub-resource for the current version
			continue
		}
		if _, sub := known[name]; sub {
			named = true
			continue
		}
		switch {
		case name == ofSubResources[at]:
			more = true
		case len(k) == 0, name == "x-id", signed(k):
		default:
			return s3err.GetAPIError(s3err.ErrMethodNotAllowed)
		}
	}
	switch {
	case named || !more:
		return nil
	case empty:
		return s3err.GetInvalidArgumentErr(s3err.InvalidArgVersionId, "")
	}
	return s3err.GetAPIError(s3err.ErrMethodNotAllowed)
}

// carriesData reports whether the body of a request is the content of an object or a form. Such a body is streamed.
func carriesData(rctx *fasthttp.RequestCtx, at level, plain bool) bool {
	switch {
	case rctx.IsPost():
		return at == onBucket && isForm(rctx)
	case !rctx.IsPut() || at != onObject || len(rctx.Request.Header.Peek("X-Amz-Copy-Source")) > 0:
		return false
	case plain:
		return true
	}
	for k := range rctx.QueryArgs().All() {
		if name := string(k); name != "partNumber" && name != "uploadId" && name != "x-id" && !signed(k) {
			return false
		}
	}
	return true
}

// plainQuery reports whether all arguments belong to a version 4 signature. This is true for most requests and
// saves further scans of the arguments.
func plainQuery(args *fasthttp.Args) bool {
	for k := range args.All() {
		switch string(k) {
		case "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature":
		default:
			return false
		}
	}
	return true
}

// refusedQuery returns an argument that is not supported and the feature that it asks for.
func refusedQuery(args *fasthttp.Args, reads bool) (name, what string) {
	for k, v := range args.All() {
		if what, ok := refusedArgs[string(k)]; ok {
			return string(k), what
		}
		if string(k) == "x-id" {
			if _, ok := refusedOperations[string(v)]; ok {
				return string(v), "this operation"
			}
			continue
		}
		if onlyHeader(k) {
			return string(k), "it has to be a header"
		}
		if _, ok := knownArgs[string(k)]; ok || signed(k) || len(k) == 0 {
			continue
		}
		// An unknown parameter of a read is harmless, and S3 allows it.
		if reads && len(v) > 0 {
			continue
		}
		return string(k), "this sub-resource"
	}
	return "", ""
}

// signed reports whether an argument belongs to a presigned URL: X-Amz-Signature, for example, or a header that the
// signer moved into the query.
func signed(k []byte) bool {
	const prefix = "x-amz-"
	return len(k) > len(prefix) && strings.EqualFold(string(k[:len(prefix)]), prefix) && !isRefused(string(k))
}

func onlyHeader(k []byte) bool {
	for _, prefix := range onlyHeaders {
		if len(k) >= len(prefix) && strings.EqualFold(string(k[:len(prefix)]), prefix) {
			return true
		}
	}
	return false
}

func isRefused(name string) bool {
	for i := range refusedHeaders {
		if strings.EqualFold(refusedHeaders[i].name, name) {
			return true
		}
	}
	return false
}

// notImplemented returns the S3 error for a feature that this server does not have.
func notImplemented(name, what string) s3err.S3Error {
	return s3err.APIError{
		Code: "NotImplemented",
		Description: "A header or parameter you provided implies functionality that is not implemented: " + name + " (" +
			what + ").",
		HTTPStatusCode: http.StatusNotImplemented,
	}
}

// answer replies to a request with an S3 error.
func answer(ctx fiber.Ctx, err s3err.S3Error) error {
	requestID, hostID := utils.EnsureRequestIDs(ctx)
	ctx.RequestCtx().SetUserValue(errorKey, err)
	ctx.Response().Header.SetContentType(fiber.MIMEApplicationXML)
	return ctx.Status(err.StatusCode()).Send(err.XMLBody(requestID, hostID))
}
