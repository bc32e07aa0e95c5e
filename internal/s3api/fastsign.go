// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"

	"github.com/nebulaio/nebulaio/internal/iam"
)

const (
	algorithmV4     = "AWS4-HMAC-SHA256"
	unsignedPayload = "UNSIGNED-PAYLOAD"
	stampLayout     = "20060102T150405Z"
	// longestExpiry is the largest X-Amz-Expires in seconds.
	longestExpiry = 604800
	// mostSigningKeys is the largest number of cached signing keys.
	mostSigningKeys = 1024
)

// Positions of headers in plainNames.
const (
	headerHost = iota
	headerContentLength
	headerContentType
	headerAuthorization
	headerDate
	headerPayload
	headerSumAlgorithm
	headerFirstSum
	headerLastSum = headerFirstSum + 4
	headerToken   = headerLastSum + 1 // of a session of a directory bucket
	headerExpect  = headerToken + 1
	headerRange   = headerExpect + 1
	headerMatch   = headerRange + 1
	headerNoMatch = headerMatch + 1
	headerMode    = headerNoMatch + 1
)

// plainNames are the headers of a request on the fast path, as the HTTP server writes their names. Headers without a
// position above have no meaning for PUT, GET and HEAD.
var plainNames = [...]string{
	"Host", "Content-Length", "Content-Type", "Authorization", "X-Amz-Date", "X-Amz-Content-Sha256",
	"X-Amz-Sdk-Checksum-Algorithm", "X-Amz-Checksum-Crc32", "X-Amz-Checksum-Crc32c", "X-Amz-Checksum-Crc64nvme",
	"X-Amz-Checksum-Sha1", "X-Amz-Checksum-Sha256", "X-Amz-S3session-Token", "Expect",
	"Range", "If-Match", "If-None-Match", "X-Amz-Checksum-Mode",
	"Accept", "Accept-Encoding", "Amz-Sdk-Invocation-Id", "Amz-Sdk-Request", "Connection", "User-Agent",
	"X-Amz-User-Agent",
}

// headerSet is a set of positions in plainNames.
type headerSet uint32

const (
	headerChecksums headerSet = 1<<(headerLastSum+1) - 1<<headerSumAlgorithm
	// headerRequired are the headers that a signature has to cover if a request has them.
	headerRequired = 1<<headerHost | 1<<headerDate | 1<<headerPayload | headerChecksums | 1<<headerToken |
		1<<headerMode | 1<<(len(plainNames)-1)
	// headerReads are the headers that only a GET or HEAD on the fast path may have. headerWrites are those that only a
	// PUT may have.
	headerReads  headerSet = 1<<headerRange | 1<<headerMatch | 1<<headerNoMatch | 1<<headerMode
	headerWrites           = headerChecksums | 1<<headerToken | 1<<headerExpect
)

// signedNames are plainNames in lower case, as a signature names them.
var signedNames = lowered(plainNames)

func lowered(names [len(plainNames)]string) [len(plainNames)]string {
	for i := range names {
		names[i] = strings.ToLower(names[i])
	}
	return names
}

// plainHeader holds the header of a request that has only headers of plainNames.
type plainHeader struct {
	values [len(plainNames)][]byte // share memory with the request
	set    headerSet
}

// read reads the header of a PUT. It returns false if the header has another name, or a name twice.
func (h *plainHeader) read(from *fasthttp.RequestHeader) bool {
	if !h.collect(from) || h.has(headerReads) {
		return false
	}
	// The HTTP server keeps the length apart. The caller has checked that there is one.
	h.values[headerContentLength] = strconv.AppendInt(nil, int64(from.ContentLength()), 10)
	h.set |= 1 << headerContentLength
	return true
}

// readGet is like read for a GET or HEAD, which has no body.
func (h *plainHeader) readGet(from *fasthttp.RequestHeader) bool {
	return len(from.Peek("Content-Length")) == 0 && h.collect(from) && !h.has(headerWrites)
}

// collect keeps the values of all headers but the length of the body.
func (h *plainHeader) collect(from *fasthttp.RequestHeader) bool {
	for k, v := range from.All() {
		at := positionOf(string(k))
		if at < 0 || h.set&(1<<at) != 0 {
			return false
		}
		h.values[at] = v
		h.set |= 1 << at
	}
	return h.has(1 << headerHost)
}

// positionOf returns the position of a header in plainNames, or -1.
func positionOf(name string) int {
	for i := range plainNames {
		if plainNames[i] == name {
			return i
		}
	}
	return -1
}

func (h *plainHeader) value(at int) []byte { return h.values[at] }

// has reports whether the request has at least one of the headers.
func (h *plainHeader) has(set headerSet) bool { return h.set&set != 0 }

// appendSigned appends the canonical lines of the headers that a signature covers, in the order of the signature. It
// returns false if the list is not sorted, names a header that the request does not have, or leaves out a header that
// has to be signed.
func (h *plainHeader) appendSigned(b []byte, names string) ([]byte, bool) {
	var covered headerSet
	last := ""
	for name := range strings.SplitSeq(names, ";") {
		at := h.signedPosition(name)
		if at < 0 || at == headerAuthorization || name <= last {
			return b, false
		}
		last = name
		covered |= 1 << at
		v := h.values[at]
		if bytes.Contains(v, []byte("  ")) || bytes.IndexByte(v, '\t') >= 0 || len(bytes.TrimSpace(v)) != len(v) {
			return b, false // the signature has it in another form
		}
		b = append(append(b, name...), ':')
		b = append(append(b, v...), '\n')
	}
	return b, covered&headerRequired == h.set&headerRequired
}

// signedPosition returns the position of a header of this request by its name in lower case, or -1.
func (h *plainHeader) signedPosition(name string) int {
	for i := range signedNames {
		if h.has(1<<i) && signedNames[i] == name {
			return i
		}
	}
	return -1
}

// claim is what a request says about its signature of version 4.
type claim struct {
	service             string // for which the request has to be signed, set before read
	method, operation   string // of the request, such as PUT and PutObject, set before read
	access, day, region string
	stamp               string // time of the signature
	names               string // signed headers
	signature           string
	query               string // canonical query
	payload             string // hash of the body, or unsignedPayload
}

// read reads the claim from the arguments of a presigned URL, or from the headers. It returns false if the claim is
// malformed, expired, or for another service.
func (c *claim) read(args *fasthttp.Args, h *plainHeader) bool {
	if h.has(1 << headerAuthorization) {
		return c.readHeader(args, h)
	}
	return c.readQuery(args, h)
}

func (c *claim) readHeader(args *fasthttp.Args, h *plainHeader) bool {
	switch args.Len() {
	case 0:
	case 1: // many SDKs add the name of the operation
		if string(args.Peek("x-id")) != c.operation {
			return false
		}
		c.query = "x-id=" + c.operation
	default:
		return false
	}
	text, ok := strings.CutPrefix(string(h.value(headerAuthorization)), algorithmV4+" ")
	if !ok || strings.Count(text, ",") != 2 {
		return false
	}
	part := func(name string) (value string) {
		var field string
		field, text, _ = strings.Cut(text, ",")
		value, found := strings.CutPrefix(strings.TrimLeft(field, " "), name+"=")
		ok = ok && found
		return value
	}
	credential := part("Credential")
	c.names, c.signature = part("SignedHeaders"), part("Signature")
	c.stamp, c.payload = string(h.value(headerDate)), string(h.value(headerPayload))
	at, dated := parseStamp(c.stamp)
	return ok && dated && utils.ValidateDate(at) == nil && c.readCredential(credential) &&
		(c.payload == unsignedPayload || len(c.payload) == hex.EncodedLen(sha256.Size) && isLowerHex(c.payload))
}

// parseStamp returns the time of a signature. It returns false if the time has another form than stampLayout, such as
// fractions of a second, which time.Parse accepts. A signature never covers such a form.
func parseStamp(text string) (at time.Time, ok bool) {
	if len(text) != len(stampLayout) || strings.ContainsAny(text, ".,") {
		return time.Time{}, false
	}
	at, err := time.Parse(stampLayout, text)
	return at, err == nil
}

func isLowerHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func (c *claim) readQuery(args *fasthttp.Args, h *plainHeader) bool {
	if args.Len() != 6 || h.has(1<<headerPayload|1<<headerDate) {
		return false
	}
	arg := func(name string) string { return string(args.Peek(name)) }
	expires := arg("X-Amz-Expires")
	seconds, err := strconv.Atoi(expires)
	if err != nil || strconv.Itoa(seconds) != expires || seconds < 0 || seconds > longestExpiry {
		return false
	}
	c.stamp, c.names, c.signature = arg("X-Amz-Date"), arg("X-Amz-SignedHeaders"), arg("X-Amz-Signature")
	at, ok := parseStamp(c.stamp)
	if !ok || at.Add(time.Duration(seconds)*time.Second).Before(time.Now()) ||
		arg("X-Amz-Algorithm") != algorithmV4 || c.signature == "" || !c.readCredential(arg("X-Amz-Credential")) {
		return false
	}
	c.payload = unsignedPayload
	c.query = "X-Amz-Algorithm=" + algorithmV4 + "&X-Amz-Credential=" + c.access + "%2F" + c.day + "%2F" + c.region +
		"%2Fs3%2Faws4_request&X-Amz-Date=" + c.stamp + "&X-Amz-Expires=" + expires + "&X-Amz-SignedHeaders=" +
		strings.ReplaceAll(c.names, ";", "%3B")
	return true
}

// readCredential reads ACCESS/DAY/REGION/SERVICE/aws4_request.
func (c *claim) readCredential(text string) bool {
	fields := strings.Split(text, "/")
	if len(fields) != 5 || fields[3] != c.service || fields[4] != "aws4_request" {
		return false
	}
	c.access, c.day, c.region = fields[0], fields[1], fields[2]
	return strings.HasPrefix(c.stamp, c.day) && len(c.day) == 8 && allUnreserved(c.access) && allUnreserved(c.region)
}

// verifier checks signatures of version 4 on the fast path.
type verifier struct {
	accounts *iam.Service
	region   string
	mu       sync.RWMutex
	keys     map[string]signingKey // by access key
}

// signingKey is the key that an account's secret makes for one day.
type signingKey struct {
	secret, day string
	key         []byte
}

// account returns the account that has signed a request. It returns false if the signature is not certainly correct.
func (v *verifier) account(c *claim, h *plainHeader, path []byte) (iam.Account, bool) {
	if c.region != v.region || strings.HasPrefix(c.access, iam.SessionPrefix) {
		return iam.Account{}, false
	}
	account, err := v.accounts.Get(c.access)
	if err != nil {
		return account, false
	}
	return account, c.madeBy(v.signingKey(account, c.day), h, path)
}

// madeBy reports whether a key has made the signature of a request. The path is the one that the client signed.
func (c *claim) madeBy(key []byte, h *plainHeader, path []byte) bool {
	request := make([]byte, 0, 1024)
	request = append(append(append(append(request, c.method...), '\n'), path...), '\n')
	request = append(append(request, c.query...), '\n')
	request, ok := h.appendSigned(request, c.names)
	if !ok {
		return false
	}
	request = append(append(append(request, '\n'), c.names...), '\n')
	sum := sha256.Sum256(append(request, c.payload...))
	text := append(request[:0], algorithmV4+"\n"...)
	text = append(append(text, c.stamp...), '\n')
	text = append(append(append(append(text, c.day...), '/'), c.region...), '/')
	text = append(append(text, c.service...), "/aws4_request\n"...)
	text = hex.AppendEncode(text, sum[:])
	var want [2 * sha256.Size]byte
	hex.Encode(want[:], authenticate(key, text))
	return hmac.Equal(want[:], []byte(c.signature))
}

func (v *verifier) signingKey(account iam.Account, day string) []byte {
	v.mu.RLock()
	known, ok := v.keys[account.AccessKey]
	v.mu.RUnlock()
	if ok && known.secret == account.Secret && known.day == day {
		return known.key
	}
	key := authenticate([]byte("AWS4"+account.Secret), []byte(day))
	for _, part := range [...]string{v.region, "s3", "aws4_request"} {
		key = authenticate(key, []byte(part))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.keys == nil || len(v.keys) >= mostSigningKeys {
		v.keys = map[string]signingKey{}
	}
	v.keys[account.AccessKey] = signingKey{secret: account.Secret, day: day, key: key}
	return key
}

// authenticate returns the HMAC-SHA256 of a text.
func authenticate(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}
