// SPDX-License-Identifier: Apache-2.0

package wire

// The codes of Error, for programs. A client that does not know a code goes by the kind.
const (
	CodeBadMessage   = "BadMessage"   // cannot be understood, or comes at the wrong time; the connection ends
	CodeVersion      = "Version"      // no version is spoken by both sides; the connection ends
	CodeAccessDenied = "AccessDenied" // unknown key or wrong secret, or a policy does not allow it
	// the client is connected to somebody else, who passes its login on; the connection ends
	CodeRelayed            = "Relayed"
	CodeTooManyConnections = "TooManyConnections" // the connection ends
	CodeIdle               = "Idle"               // silent for longer than Greeting.Idle; the connection ends
	CodeBusy               = "Busy"               // somebody else keeps a file for a moment: ask again
	// the server is stopping: nothing new is opened, what is open may be finished
	CodeDraining           = "Draining"
	CodeNoSuchBucket       = "NoSuchBucket"
	CodeNoSuchKey          = "NoSuchKey"
	CodeNoSuchVersion      = "NoSuchVersion"
	CodeDeleteMarker       = "DeleteMarker" // the version has no content
	CodeInvalidName        = "InvalidName"
	CodeInvalidRange       = "InvalidRange" // does not lie within the object or the draft
	CodeInvalidArgument    = "InvalidArgument"
	CodeTooLarge           = "TooLarge"         // beyond MaxTransferSize, MaxDraft or what a store keeps
	CodeDeviceNotAllowed   = "DeviceNotAllowed" // not among Greeting.Devices
	CodeNoSuchHandle       = "NoSuchHandle"     // never given, or let go
	CodeTooManyHandles     = "TooManyHandles"   // MaxHandles are open
	CodeTooManyFiles       = "TooManyFiles"     // the server has no descriptor left
	CodeWriterLeft         = "WriterLeft"       // a draft's file can still be written to; the draft stays
	CodeBadSums            = "BadSums"          // the sums are not those of the content; the draft stays
	CodePreconditionFailed = "PreconditionFailed"
	CodeNoSpace            = "NoSpace"
	CodeReadOnly           = "ReadOnly"
	CodeUnsupported        = "Unsupported"
	CodeDamaged            = "Damaged"
	CodeInternal           = "Internal"
)

// Codes lists every code, for tables of counters.
func Codes() []string {
	return []string{
		CodeBadMessage, CodeVersion, CodeAccessDenied, CodeRelayed, CodeTooManyConnections, CodeIdle, CodeBusy,
		CodeDraining, CodeNoSuchBucket, CodeNoSuchKey,
		CodeNoSuchVersion, CodeDeleteMarker, CodeInvalidName, CodeInvalidRange, CodeInvalidArgument, CodeTooLarge,
		CodeDeviceNotAllowed,
		CodeNoSuchHandle, CodeTooManyHandles, CodeTooManyFiles, CodeWriterLeft, CodeBadSums, CodePreconditionFailed,
		CodeNoSpace, CodeReadOnly,
		CodeUnsupported, CodeDamaged, CodeInternal,
	}
}
