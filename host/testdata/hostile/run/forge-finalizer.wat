;; Adds a finalizer, so that nobody can delete the object.
;; want: GuardError: finalizers
(data (i32.const 0) "metadata.finalizers")
(data (i32.const 32) "[\22x\22]")
(func $bad (call $set_json (i32.const 1) (i32.const 0) (i32.const 19) (i32.const 32) (i32.const 5)))
