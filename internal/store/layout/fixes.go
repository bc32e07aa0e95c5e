// SPDX-License-Identifier: Apache-2.0

package layout

// SaveFix is the advice for damaged metadata that nebulaio store check has already examined.
const SaveFix = "restore a backup with nebulaio store restore, or save what is readable with nebulaio store salvage"

// MetaFix is the advice for damaged metadata that nebulaio store check has not examined yet.
const MetaFix = "run nebulaio store check to see all damage; " + SaveFix

// FormatFix is the advice for a damaged file FORMAT.
const FormatFix = "restore " + FormatName + " from a backup, or save the store with nebulaio store salvage; nothing " +
	"was changed"
