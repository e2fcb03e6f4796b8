;; Gives the object an identity.
;; want: GuardError: uid
(data (i32.const 0) "metadata.uid")
(data (i32.const 128) "x")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 12) (i32.const 128) (i32.const 1)))
