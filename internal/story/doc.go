// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package story plays scenario files against real clusters: text that says what a user does and what they expect to see, in a line
// each, with the objects below. The language is that of testscript, with these commands ("! " before one negates it):
//
//	create SIDE FILE...                       create the objects of the files, with their status
//	patch SIDE KIND/NAME [-s SUBRESOURCE] YAML
//	                                          merge a patch
//	delete SIDE KIND/NAME                     delete an object
//	expect SIDE KIND/NAME [PATH=VALUE...]     wait until an object is there, with these values (!= other ones, ~= with this text); negated: until it is gone
//	event KIND/NAME WORD...                   wait for an Event about an object of the first side, with all the words; negated: there is none now
//	remember SIDE KIND/NAME PATH VARIABLE     set a variable to the present value
//	mark                                      forget the writes so far
//	writes SIDE NUMBER [WORD...]              so many writes were made since the mark, by what is being tested, with all the words
//	settle                                    wait until whatever is to happen has happened; mark and writes do
//
// KIND is what kubectl takes. A PATH is dotted; "[x]" picks the element of a list with that type, name, ip or key, or at that place from 0, "/" begins a
// last key that may have dots: status.conditions[Ready].status, metadata.labels/app.kubernetes.io/name. VALUE may be empty: there
// is none. Variables of the stage are replaced in files and arguments.
package story
