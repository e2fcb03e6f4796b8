// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package story plays scenario files against real clusters. A scenario describes the actions of a user and the
// expected results, one per line. The objects come after these lines. The language is that of testscript, with these
// additional commands ("! " before a command negates it):
//
//	create SIDE FILE...                       create the objects of the files, with their status
//	patch SIDE KIND/NAME [-s SUBRESOURCE] YAML
//	                                          merge a patch
//	delete SIDE KIND/NAME                     delete an object
//	expect SIDE KIND/NAME [PATH=VALUE...]     wait until an object exists, with these values (!= other ones,
//	                                          ~= with this text); negated: until it is gone
//	event KIND/NAME WORD...                   wait for an Event about an object of the home side, with all the
//	                                          words; negated: no Event about the object exists now
//	remember SIDE KIND/NAME PATH VARIABLE     set a variable to the current value
//	mark                                      clear the record of writes
//	writes SIDE NUMBER [WORD...]              check the number of writes of the tested processes since the mark,
//	                                          with all the words
//	settle                                    wait until all pending reactions have happened; mark and writes do so, too
//
// KIND is a kind in the notation of kubectl. The names in a PATH are separated by dots. "[x]" selects the element of
// a list whose type, name, ip or key is x, or whose index (from 0) is x. After a "/", the rest is a single key, which
// may contain dots. Examples: status.conditions[Ready].status, metadata.labels/app.kubernetes.io/name. An empty VALUE
// means that the field does not exist. Variables of the stage are replaced in files and arguments.
package story
