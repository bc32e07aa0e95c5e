// SPDX-License-Identifier: Apache-2.0

package layout

// SaveFix says what to do about damaged metadata that check has looked at.
const SaveFix = "restore a backup with nebulaio store restore, or save what is readable with nebulaio store salvage"

// MetaFix says what to do about damaged metadata.
const MetaFix = "run nebulaio store check to see all damage; " + SaveFix

// FormatFix says what to do about a damaged FORMAT.
const FormatFix = "restore " + FormatName + " from a backup, or save the store with nebulaio store salvage; nothing " +
	"was changed"
