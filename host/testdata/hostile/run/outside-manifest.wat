;; Writes what its manifest does not say.
;; want: GuardError: manifest
;; writes: metadata.labels
(data (i32.const 0) "spec.x")
(data (i32.const 128) "x")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 6) (i32.const 128) (i32.const 1)))
